"""What accumulates, and nobody needs any more: files, journaled operations, leftovers of index builds."""
