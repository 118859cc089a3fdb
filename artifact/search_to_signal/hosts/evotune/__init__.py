"""EvoTune's search: a database of islands that prompts are drawn from."""
