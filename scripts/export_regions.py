"""Makes regions of an exported program part of it: `with torch.no_grad()` and `with torch.autocast(enabled=False)`.

torch.export keeps them as graphs of their own. What a region without gradients takes is detached, so that it gives the same
values and no gradients. Nodes that autocast leaves alone are marked, for runs in bfloat16.
"""

import operator

import torch
from export_sources import CannotExport

NO_GRAD, AUTOCAST = torch.ops.higher_order.wrap_with_set_grad_enabled, torch.ops.higher_order.wrap_with_autocast
WITHOUT_AUTOCAST = "without_autocast"


def settings_of(node, keeps_gradients):
    """Whether the region has gradients and autocast, the node of its graph, and what it takes."""
    if node.target is NO_GRAD:
        has_gradients, region, *inputs = node.args
        if has_gradients and not keeps_gradients:
            raise CannotExport("torch.enable_grad() within torch.no_grad() is not supported; leave one of them out")
        return has_gradients, True, region, inputs
    _, _, is_enabled, _, region, *inputs = node.args
    if is_enabled:
        raise CannotExport('torch.autocast(...) in forward() is not supported; remove it, and train with train.precision = "bf16"')
    return True, False, region, inputs


def detached(graph, value, region):
    if not isinstance(value, torch.fx.Node) or not isinstance(value.meta.get("val"), torch.Tensor):
        return value
    node = graph.call_function(torch.ops.aten.detach.default, (value,))
    node.meta = {**{key: region.meta[key] for key in ("stack_trace", "nn_module_stack") if key in region.meta}, "val": value.meta["val"]}
    return node


def inline(graph, node, part, inputs, has_gradients, has_autocast):
    """Puts the nodes of a region before its node. Returns what they give."""
    values = dict(zip((one for one in part.nodes if one.op == "placeholder"), inputs, strict=True))
    with graph.inserting_before(node):
        if not has_gradients:
            values = {inner: detached(graph, value, node) for inner, value in values.items()}
        for inner in part.nodes:
            if inner.op == "output":
                return torch.fx.map_arg(inner.args[0], lambda one: values[one])
            if inner.op == "placeholder":
                continue
            values[inner] = graph.node_copy(inner, lambda one: values[one])
            if not has_autocast:
                values[inner].meta["custom"] = {**inner.meta.get("custom", {}), WITHOUT_AUTOCAST: True}
    raise AssertionError("a graph without an output")


def inline_regions(module, keeps_gradients=True):
    """Changes the graph of the module. Returns the new names of values by their old ones."""
    graph, renamed = module.graph, {}
    for node in [node for node in graph.nodes if node.op == "call_function" and node.target in (NO_GRAD, AUTOCAST)]:
        has_gradients, has_autocast, region, inputs = settings_of(node, keeps_gradients)
        part = module.get_submodule(region.target)
        inline_regions(part, keeps_gradients and has_gradients)
        results = inline(graph, node, part.graph, inputs, has_gradients, has_autocast)
        for user in list(node.users):
            result = results[user.args[1]] if user.target is operator.getitem else results
            renamed[user.name] = result.name
            user.replace_all_uses_with(result)
            graph.erase_node(user)
        graph.erase_node(node)
        if not region.users:
            graph.erase_node(region)
    module.delete_all_unused_submodules()
    graph.lint()
    module.recompile()
    return renamed


def without_regions(exported):
    """The same program, changed in place."""
    renamed = inline_regions(exported.graph_module)
    for spec in exported.graph_signature.output_specs:
        name = getattr(spec.arg, "name", None)
        while name in renamed:
            name = spec.arg.name = renamed[name]
    return exported
