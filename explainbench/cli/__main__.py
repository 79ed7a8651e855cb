"""python -m explainbench.cli"""

from explainbench.cli import main

main()
