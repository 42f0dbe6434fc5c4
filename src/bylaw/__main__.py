"""`python -m bylaw`, and the command `bylaw`."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["hook"]:  # runs for each tool call of a coding agent, so it loads no more than it needs
        from bylaw.guard.integrations.hooks import main as run_hook

        run_hook(sys.argv[2:])
    from bylaw.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
