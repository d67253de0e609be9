"""Expressions of flows, in JMESPath: each part and each function is charged by what it reads and makes, before it does.

    visit of a part ──► 1 step                       a budget is passed along: one item's is a part of that of the
    function        ──► its row in COSTS             ack that ends it, so many expressions cost no more than a few
    value made      ──► its bytes, wide text at 4 a character

docs/flows.md has the table of what each function costs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from jmespath.exceptions import JMESPathError, UnknownFunctionError
from jmespath.functions import Functions, signature
from jmespath.parser import Parser
from jmespath.visitor import Options, TreeInterpreter

from pinlater.flows.budgets import (
    BYTES_A_STEP,
    ENTRY_BYTES,
    LIST_BYTES,
    OBJECT_BYTES,
    PLACE_BYTES,
    VALUES_A_STEP,
    WIDE,
    Budget,
)

MAX_COMPILED_CHARS = 100_000
"""Of the expressions that are kept as they were understood."""

_PARSED_BYTES = 400
"""That a character may take so."""

_COMPARISONS_A_STEP, _COMPARED_BYTES_A_STEP = 16, 4_096
_SEARCHED_A_STEP, _LONGEST_SLOW_SEARCH = 2_048, 100
"""A text of fewer characters is searched for at each place anew."""

_KEPT_BYTES_A_STEP = 16

_ESCAPED = 6
"""Bytes of a character that JSON escapes; a wide one, counted for four, has up to twelve."""

_REMEMBERED_BYTES = 250
"""Of the size of a list or an object, which is counted once."""

_MAX_DIGITS = 4_300
"""A text with more of them is no whole number for Python."""


def evaluate(expression: str, value: Any, budget: Budget) -> Any:
    """What an expression makes of a value of JSON; writing it as JSON is paid for too. TooDear; errors of jmespath, and
    whatever else its functions raise.
    """
    parsed = COMPILED.get(expression)
    if parsed is None:
        budget.spend(len(expression), "reading the expression")
        budget.make(len(expression) * _PARSED_BYTES, "reading the expression")
        parsed = COMPILED.add(expression)
    evaluation = _Evaluation(budget)
    try:
        made = evaluation.visit(parsed, value)
        for each in made if isinstance(made, list) else (made,):
            evaluation.charge_written(each)
    finally:
        evaluation.close()
    return made


class CompiledExpressions:
    """Expressions as jmespath understands them: those that were used last, up to so many characters."""

    def __init__(self, most_chars: int) -> None:
        self._most_chars, self.chars = most_chars, 0
        self._parsed: OrderedDict[str, Any] = OrderedDict()
        self._changing = Lock()

    def get(self, expression: str) -> Any:
        """None: it is not kept."""
        with self._changing:
            found = self._parsed.get(expression)
            if found is not None:
                self._parsed.move_to_end(expression)
        return found

    def add(self, expression: str) -> Any:
        """Errors of jmespath: it is no expression."""
        parser = Parser()
        parsed = parser.parse(expression).parsed
        parser.purge()  # it keeps 512 of whatever length
        with self._changing:
            if expression not in self._parsed:
                self.chars += len(expression)
            self._parsed[expression] = parsed
            while self.chars > self._most_chars:
                self.chars -= len(self._parsed.popitem(last=False)[0])
        return parsed


COMPILED = CompiledExpressions(MAX_COMPILED_CHARS)


class _Evaluation(TreeInterpreter):  # type: ignore[misc]
    def __init__(self, budget: Budget) -> None:
        super().__init__(Options(custom_functions=_ChargedFunctions(self)))
        self.budget = budget
        self._sizes: dict[int, tuple[Any, int, int]] = {}
        """Of lists and objects by their ids, each kept so that no other one gets its id."""

    def close(self) -> None:
        """It and its functions know each other; what they keep goes at once."""
        self._sizes.clear()

    def visit(self, node: Any, *arguments: Any, **named: Any) -> Any:
        budget = self.budget
        budget.steps -= 1
        if budget.steps < budget.stop_at:
            budget.stop(f"the part {node['type'].replace('_', ' ')!r}")
        return super().visit(node, *arguments, **named)

    def size(self, value: Any, what: str) -> tuple[int, int]:
        """Values and bytes as if it were written out: what stands in several places counts in each. TooDear."""
        if isinstance(value, str):
            return 1, len(value) * (1 if value.isascii() else WIDE)
        if isinstance(value, int):
            digits = value.bit_length() // 8
            return 1, 8 + digits * (1 + digits // 64)  # writing a long one takes the square of its length
        if value is None or isinstance(value, float):
            return 1, 8
        if not isinstance(value, (list, dict)):
            raise JMESPathError("an expression (&) is no value")
        known = self._sizes.get(id(value))
        if known is not None:
            return known[1], known[2]
        self.budget.make(_REMEMBERED_BYTES, what)
        self.budget.spend(1 + len(value) // 4, what)
        values, size = 1, len(value) * PLACE_BYTES
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            more_values, more_bytes = self.size(each, what)
            values, size = values + more_values, size + more_bytes
        self._sizes[id(value)] = value, values, size
        return values, size

    def charge_writing(self, value: Any, what: str) -> None:
        values, size = self.size(value, what)
        self.budget.make(size * _ESCAPED, what)
        self.budget.spend(values + size // BYTES_A_STEP, what)

    def charge_written(self, value: Any) -> None:
        """For a child: it is kept until it is in the database."""
        values, size = self.size(value, "what it makes")
        self.budget.make(size * _ESCAPED, "what it makes")
        self.budget.spend(values // 2 + size // _KEPT_BYTES_A_STEP, "what it makes")

    def charge_places(self, amount: int, what: str) -> None:
        """For a list of so many values that are there."""
        self.budget.make(LIST_BYTES + amount * PLACE_BYTES, what)
        self.budget.spend(amount // VALUES_A_STEP, what)

    def charge_text(self, size: int, what: str) -> None:
        self.budget.make(size, what)
        self.budget.spend(size // BYTES_A_STEP, what)

    def charge_compared(self, left: Any, right: Any, what: str) -> None:
        if isinstance(left, str) and isinstance(right, str):
            self.budget.spend(min(len(left), len(right)) // BYTES_A_STEP, what)
        elif type(left) is type(right) and isinstance(left, (list, dict)) and len(left) == len(right):
            values, size = min(self.size(left, what), self.size(right, what))
            self.budget.spend(values // VALUES_A_STEP + size // BYTES_A_STEP, what)

    def charge_order(self, values: Any, what: str, *, sorts: bool) -> None:
        """For the kind of each value, and for comparing them: once, or as sorting does."""
        _, size = self.size(values, what)
        amount = len(values)
        rounds = amount.bit_length() if sorts else 1
        compared = amount // _COMPARISONS_A_STEP + size // _COMPARED_BYTES_A_STEP
        self.budget.spend(amount // VALUES_A_STEP + rounds * compared, what)

    # -- parts of an expression that do more than a visit --------------------------------------------------------------

    def visit_comparator(self, node: Any, value: Any) -> Any:
        left, right = (self.visit(child, value) for child in node["children"])
        is_order = node["value"] not in ("eq", "ne")
        if is_order and not all(isinstance(each, str) or _is_number(each) for each in (left, right)):
            return None
        self.charge_compared(left, right, "a comparison")
        return self.COMPARATOR_FUNC[node["value"]](left, right)

    def visit_flatten(self, node: Any, value: Any) -> Any:
        base = self.visit(node["children"][0], value)
        if not isinstance(base, list):
            return None
        self.budget.spend(len(base) // 4, "[]")
        self.charge_places(sum(len(each) if isinstance(each, list) else 1 for each in base), "[]")
        flat: list[Any] = []
        for each in base:
            flat += each if isinstance(each, list) else [each]
        return flat

    def visit_slice(self, node: Any, value: Any) -> Any:
        if isinstance(value, list):
            self.charge_places(len(value), "a slice")
        return super().visit_slice(node, value)

    def visit_multi_select_list(self, node: Any, value: Any) -> Any:
        self.budget.make(LIST_BYTES + len(node["children"]) * PLACE_BYTES, "a list in brackets")
        return super().visit_multi_select_list(node, value)

    def visit_multi_select_dict(self, node: Any, value: Any) -> Any:
        self.budget.make(OBJECT_BYTES + len(node["children"]) * ENTRY_BYTES, "an object in braces")
        return super().visit_multi_select_dict(node, value)

    def visit_projection(self, node: Any, value: Any) -> Any:
        return self._projected(super().visit_projection(node, value))

    def visit_filter_projection(self, node: Any, value: Any) -> Any:
        return self._projected(super().visit_filter_projection(node, value))

    def visit_value_projection(self, node: Any, value: Any) -> Any:
        return self._projected(super().visit_value_projection(node, value))

    def _projected(self, made: Any) -> Any:
        """Each of its values was a visit, so that its places are few; they count as memory."""
        if made is not None:
            self.budget.make(LIST_BYTES + len(made) * PLACE_BYTES, "a projection")
        return made


class _ChargedFunctions(Functions):  # type: ignore[misc]
    def __init__(self, evaluation: _Evaluation) -> None:
        self._evaluation = evaluation

    def call_function(self, function_name: str, resolved_args: Sequence[Any]) -> Any:
        cost = COSTS.get(function_name)
        if cost is None:
            raise UnknownFunctionError(f"Unknown function: {function_name}()")
        if resolved_args:
            cost(self._evaluation, f"{function_name}()", resolved_args)
        return super().call_function(function_name, resolved_args)

    # -- those that compare by what another expression makes of each value: charged when that is known -----------------

    @signature({"types": ["array"]}, {"types": ["expref"]})  # type: ignore[untyped-decorator]
    def _func_sort_by(self, array: list[Any], expref: Any) -> list[Any]:
        keys = self._keys("sort_by()", array, expref, sorts=True)
        return [array[place] for place in sorted(range(len(array)), key=keys.__getitem__)]

    @signature({"types": ["array"]}, {"types": ["expref"]})  # type: ignore[untyped-decorator]
    def _func_min_by(self, array: list[Any], expref: Any) -> Any:
        keys = self._keys("min_by()", array, expref, sorts=False)
        return array[min(range(len(array)), key=keys.__getitem__)] if array else None

    @signature({"types": ["array"]}, {"types": ["expref"]})  # type: ignore[untyped-decorator]
    def _func_max_by(self, array: list[Any], expref: Any) -> Any:
        keys = self._keys("max_by()", array, expref, sorts=False)
        return array[max(range(len(array)), key=keys.__getitem__)] if array else None

    def _keys(self, what: str, array: list[Any], expref: Any, *, sorts: bool) -> list[Any]:
        self._evaluation.budget.spend(len(array), what)
        keys = [expref.visit(expref.expression, each) for each in array]
        kinds = {str if isinstance(key, str) else float if _is_number(key) else None for key in keys}
        if len(kinds) > 1 or None in kinds:
            raise JMESPathError(f"{what}: what it compares must be numbers alone, or texts alone")
        self._evaluation.charge_order(keys, what, sorts=sorts)
        return keys


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# -- what functions cost -----------------------------------------------------------------------------------------------
# Each is given what its function is, before anybody has checked the kinds of that.

Cost = Callable[[_Evaluation, str, Sequence[Any]], None]


def _nothing(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    """Its visit is all that it costs."""


def _looks(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    if isinstance(given[0], list):
        evaluation.charge_order(given[0], what, sorts=False)


def _sorts(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    if isinstance(given[0], list):
        evaluation.charge_order(given[0], what, sorts=True)
        evaluation.charge_places(len(given[0]), what)


def _lists(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    """The longest of what it is given, once more."""
    evaluation.charge_places(max(len(each) if isinstance(each, (list, dict)) else 1 for each in given), what)


def _reverses(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    if isinstance(given[0], str):
        evaluation.charge_text(evaluation.size(given[0], what)[1], what)
    else:
        _lists(evaluation, what, given)


def _merges(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    entries = sum(len(each) for each in given if isinstance(each, dict))
    evaluation.budget.make(OBJECT_BYTES + entries * ENTRY_BYTES, what)
    evaluation.budget.spend(entries // 4, what)


def _joins(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    separator, texts = given[0], given[-1]
    if not isinstance(separator, str) or not isinstance(texts, list):
        return
    evaluation.budget.spend(len(texts) // 4, what)
    parts = [each for each in texts if isinstance(each, str)]
    chars = sum(map(len, parts)) + len(separator) * max(0, len(parts) - 1)
    is_wide = not (separator.isascii() and all(map(str.isascii, parts)))
    evaluation.charge_text(chars * (WIDE if is_wide else 1), what)


def _contains(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    among, searched = given[0], given[-1]
    if isinstance(among, str) and isinstance(searched, str):
        tries = len(among) * min(len(searched), _LONGEST_SLOW_SEARCH)
        evaluation.budget.spend((len(among) + len(searched)) // BYTES_A_STEP + tries // _SEARCHED_A_STEP, what)
    elif isinstance(among, list):
        values, size = evaluation.size(among, what)
        evaluation.budget.spend(values // VALUES_A_STEP + size // BYTES_A_STEP, what)


def _compares_ends(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    evaluation.charge_compared(given[0], given[-1], what)


def _reads_number(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    if isinstance(given[0], str):
        length = len(given[0])
        evaluation.budget.make(min(length, _MAX_DIGITS), what)
        evaluation.budget.spend(length // BYTES_A_STEP + min(length, _MAX_DIGITS) ** 2 // 100_000, what)


def _writes(evaluation: _Evaluation, what: str, given: Sequence[Any]) -> None:
    if not isinstance(given[0], str):
        evaluation.charge_writing(given[0], what)


COSTS: dict[str, Cost] = {
    "abs": _nothing,
    "avg": _looks,
    "ceil": _nothing,
    "contains": _contains,
    "ends_with": _compares_ends,
    "floor": _nothing,
    "join": _joins,
    "keys": _lists,
    "length": _nothing,
    "map": _lists,
    "max": _looks,
    "max_by": _lists,
    "merge": _merges,
    "min": _looks,
    "min_by": _lists,
    "not_null": _nothing,
    "reverse": _reverses,
    "sort": _sorts,
    "sort_by": _lists,
    "starts_with": _compares_ends,
    "sum": _looks,
    "to_array": _lists,
    "to_number": _reads_number,
    "to_string": _writes,
    "type": _nothing,
    "values": _lists,
}
"""Of all functions of the language."""
