"""`python -m bylaw`, and the command `bylaw`."""

import sys


def main() -> None:
    is_hook = sys.argv[1:2] == ["hook"]
    try:
        if is_hook:  # runs for each tool call of a coding agent, so it loads no more than it needs
            from bylaw.guard.integrations.hooks import main as run_hook

            run_hook(sys.argv[2:])
        from bylaw.cli import main as run_command

        run_command()
    except KeyboardInterrupt:  # while modules are imported: the commands handle it themselves
        if sys.stderr is not None:
            print("bylaw: the call is not allowed: interrupted" if is_hook else "interrupted", file=sys.stderr)
        sys.exit(2 if is_hook else 130)  # a hook that fails otherwise lets the call run


if __name__ == "__main__":
    main()
