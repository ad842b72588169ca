"""Reading golds and answers by type, and comparing them."""
