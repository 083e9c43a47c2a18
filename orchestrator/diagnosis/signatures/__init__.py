"""The table of signatures: what lines in logs mean, as data. One module an area; `all_signatures` joins them."""
