"""Planted faults: one guard after the other is taken out of the product, and the simulation has to find it.

python -m tests.simulation.planted                       all of them, each by the plan that finds it
python -m tests.simulation.planted 'early' --shrink      those with that word in their names, and the shortest plan
python -m tests.simulation.planted 'early' --hours 2     by one plan after the other, until it is found
python -m tests.simulation.planted --page                docs/simulation-faults.md, of what the catalogue says

guards      the guards above the stores
plans       the small plans by which faults are found
catalogue   each guard, and the plan that finds that it is gone, or the reason why none can
reasons     why the simulation cannot find some of them
sentences   the same, more precisely, of those that were looked into one by one
trial       a run with one guard taken out
page        the page that shows all of that
"""
