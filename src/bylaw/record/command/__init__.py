"""Recording a child process in any language, its code untouched: a proxy on loopback that its environment leads to.

`proxy` hears what passes, `beyond` finds the way on through a proxy that was there before, `environment` leads the
child to it, `child` runs it as if nothing stood between.
"""
