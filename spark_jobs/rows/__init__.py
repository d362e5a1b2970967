"""What holds for single rows and columns, whichever job reads or writes them."""
