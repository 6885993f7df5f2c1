"""How fast, how right and how large, beside others on the same weights and the same audio."""
