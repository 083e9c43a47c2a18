"""Will it run? One file is one question; facts go in, findings come out, and nothing is asked of any host here."""
