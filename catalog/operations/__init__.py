"""Operations: their journal, their jobs and attempts, approvals and confirmations."""
