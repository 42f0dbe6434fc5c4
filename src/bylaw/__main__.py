"""`python -m bylaw`"""

from bylaw.cli import main

main()
