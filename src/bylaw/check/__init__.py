"""check: did this recorded agent keep its rules? Fold each trace through the rules, then `end`."""
