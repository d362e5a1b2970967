"""Operations: their journal, jobs, attempts, approvals and confirmations."""
