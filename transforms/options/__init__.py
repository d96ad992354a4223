"""Options that several commands have. The option classes are those of the layers that use them."""
