"""Shortest paths of flows, compiled by numba for large networks: one search for each receiver, or one for each flow."""

from __future__ import annotations

import numpy as np

from presim.hardware.network.flow_kernels import Floats, Ints


def walk(
    first: Ints, links: Ints, source: Ints, target: Ints, passes: Ints, in_first: Ints, in_links: Ints,
    senders: Ints, receivers: Ints, seed: int, paths: Ints,
) -> int:  # fmt: skip
    """Fill ``paths`` [flow, hop] with links of a shortest path for each flow; flows are ordered by their receivers.

    Among several next hops, a hash of both ends selects one, as in switches (ECMP). Returns the first flow without a
    path or with one of more hops than there is room for, or -1.

    ``first`` [vertex] is where its outgoing links begin in ``links``; ``in_first`` and ``in_links`` likewise incoming.
    ``passes`` [vertex] is 0 if it forwards no traffic of others (a GPU), 1 if it does, and 2 if it does not between
    two GPUs (a NIC).
    """
    vertices = len(first) - 1
    distance = np.full(vertices, -1, np.int64)
    queue = np.zeros(vertices, np.int64)
    last, tail = -1, 0
    for flow in range(len(senders)):
        receiver = receivers[flow]
        if receiver != last:
            last = receiver
            for position in range(tail):
                distance[queue[position]] = -1
            distance[receiver] = 0
            queue[0] = receiver
            head, tail, level = 0, 1, 0
            while head < tail:
                vertex = queue[head]
                if distance[vertex] > level:  # all nearer vertices are known; stop if these include all senders
                    level = distance[vertex]
                    next_flow = flow
                    while (
                        next_flow < len(senders)
                        and receivers[next_flow] == receiver
                        and distance[senders[next_flow]] >= 0
                    ):
                        next_flow += 1
                    if next_flow == len(senders) or receivers[next_flow] != receiver:
                        break
                head += 1
                if vertex != receiver and passes[vertex] == 0:
                    continue
                for slot in range(in_first[vertex], in_first[vertex + 1]):
                    neighbour = source[in_links[slot]]
                    if distance[neighbour] < 0 and not (
                        passes[vertex] == 2 and distance[vertex] == 1 and passes[neighbour] == 0
                    ):
                        distance[neighbour] = distance[vertex] + 1
                        queue[tail] = neighbour
                        tail += 1
        vertex = senders[flow]
        if distance[vertex] < 0 or distance[vertex] > paths.shape[1]:
            return flow
        mixed = (senders[flow] * 7919 + receiver * 104729 + seed * 1299709) % 2147483647
        hop = 0
        while vertex != receiver:
            candidates = 0
            for slot in range(first[vertex], first[vertex + 1]):
                neighbour = target[links[slot]]
                if (
                    distance[neighbour] == distance[vertex] - 1
                    and (neighbour == receiver or passes[neighbour] > 0)
                    and not (passes[neighbour] == 2 and passes[vertex] == 0 and distance[neighbour] == 1)
                ):
                    candidates += 1
            mixed = (mixed * 48271 + 11) % 2147483647
            candidates_to_skip = mixed // 7 % candidates
            for slot in range(first[vertex], first[vertex + 1]):
                neighbour = target[links[slot]]
                if (
                    distance[neighbour] == distance[vertex] - 1
                    and (neighbour == receiver or passes[neighbour] > 0)
                    and not (passes[neighbour] == 2 and passes[vertex] == 0 and distance[neighbour] == 1)
                ):
                    if candidates_to_skip == 0:
                        paths[flow, hop] = links[slot]
                        vertex = neighbour
                        break
                    candidates_to_skip -= 1
            hop += 1
    return -1


def meet(
    first: Ints, links: Ints, source: Ints, target: Ints, passes: Ints, in_first: Ints, in_links: Ints,
    senders: Ints, receivers: Ints, seed: int, paths: Ints,
) -> int:  # fmt: skip
    """Fill the same ``paths`` as `walk`; the search from both ends of a flow reads few vertices of a large network.

    Use it for flows between nodes: it lets a NIC connect two GPUs of a node, which `walk` forbids. 131,072 flows of
    16,384 GPUs take 0.3 s of CPU time instead of 5 s.
    """
    vertices = len(first) - 1
    ahead, behind = np.full(vertices, -1, np.int64), np.full(vertices, -1, np.int64)  # hops from begin, to end
    front, back = np.zeros(vertices, np.int64), np.zeros(vertices, np.int64)  # vertices seen, level after level
    front_tail = back_tail = 0
    for flow in range(len(senders)):
        sender, receiver = senders[flow], receivers[flow]
        for position in range(front_tail):
            ahead[front[position]] = -1
        for position in range(back_tail):
            behind[back[position]] = -1
        ahead[sender], behind[receiver] = 0, 0
        front[0], back[0] = sender, receiver
        front_level, front_tail, back_level, back_tail = 0, 1, 0, 1  # where the last level begins and ends
        met = sender == receiver
        while not met and front_tail > front_level and back_tail > back_level:
            if front_tail - front_level <= back_tail - back_level:
                stop = front_tail
                for position in range(front_level, stop):
                    vertex = front[position]
                    for slot in range(first[vertex], first[vertex + 1]):
                        neighbour = target[links[slot]]
                        if ahead[neighbour] < 0 and (neighbour == receiver or passes[neighbour] > 0):
                            ahead[neighbour] = ahead[vertex] + 1
                            front[front_tail] = neighbour
                            front_tail += 1
                            met = met or behind[neighbour] >= 0
                front_level = stop
            else:
                stop = back_tail
                for position in range(back_level, stop):
                    vertex = back[position]
                    for slot in range(in_first[vertex], in_first[vertex + 1]):
                        neighbour = source[in_links[slot]]
                        if behind[neighbour] < 0 and (neighbour == sender or passes[neighbour] > 0):
                            behind[neighbour] = behind[vertex] + 1
                            back[back_tail] = neighbour
                            back_tail += 1
                            met = met or ahead[neighbour] >= 0
                back_level = stop
        if not met:
            return flow
        hops = 1 << 60
        for position in range(front_tail):
            vertex = front[position]
            if behind[vertex] >= 0:
                hops = min(hops, ahead[vertex] + behind[vertex])
        if hops > paths.shape[1]:
            return flow
        # hops to the end of the vertices before those where the searches met, level after level towards the sender
        for position in range(front_tail - 1, -1, -1):
            vertex = front[position]
            if behind[vertex] < 0 or ahead[vertex] + behind[vertex] != hops:
                continue
            for slot in range(in_first[vertex], in_first[vertex + 1]):
                neighbour = source[in_links[slot]]
                if ahead[neighbour] == ahead[vertex] - 1 and ahead[neighbour] >= 0 and behind[neighbour] < 0:
                    behind[neighbour] = behind[vertex] + 1
                    back[back_tail] = neighbour
                    back_tail += 1
        mixed = (sender * 7919 + receiver * 104729 + seed * 1299709) % 2147483647
        vertex, hop = sender, 0
        while vertex != receiver:
            candidates = 0
            for slot in range(first[vertex], first[vertex + 1]):
                neighbour = target[links[slot]]
                if (
                    behind[neighbour] == behind[vertex] - 1
                    and behind[neighbour] >= 0
                    and (neighbour == receiver or passes[neighbour] > 0)
                ):
                    candidates += 1
            mixed = (mixed * 48271 + 11) % 2147483647
            candidates_to_skip = mixed // 7 % candidates
            for slot in range(first[vertex], first[vertex + 1]):
                neighbour = target[links[slot]]
                if (
                    behind[neighbour] == behind[vertex] - 1
                    and behind[neighbour] >= 0
                    and (neighbour == receiver or passes[neighbour] > 0)
                ):
                    if candidates_to_skip == 0:
                        paths[flow, hop] = links[slot]
                        vertex = neighbour
                        break
                    candidates_to_skip -= 1
            hop += 1
    return -1


def divide(
    first: Ints, links: Ints, source: Ints, target: Ints, in_first: Ints, in_links: Ints, switches: Ints,
    pairs: Floats, carried: Floats,
) -> bool:  # fmt: skip
    """Add to ``carried`` [link] the load of flows between switches; they split evenly over all shortest paths.

    ``pairs`` [sender, receiver]: number of flows. Adjacency as of `walk`, of switches. False: two switches lack a path.
    """
    vertices = len(first) - 1
    distance, queue, load = np.full(vertices, -1, np.int64), np.zeros(vertices, np.int64), np.zeros(vertices)
    for receiver in range(len(switches)):
        distance[:] = -1
        load[:] = 0.0
        distance[switches[receiver]] = 0
        queue[0] = switches[receiver]
        head, tail = 0, 1
        while head < tail:
            vertex = queue[head]
            head += 1
            for slot in range(in_first[vertex], in_first[vertex + 1]):
                neighbour = source[in_links[slot]]
                if distance[neighbour] < 0:
                    distance[neighbour] = distance[vertex] + 1
                    queue[tail] = neighbour
                    tail += 1
        for sender in range(len(switches)):
            if pairs[sender, receiver] > 0 and distance[switches[sender]] < 0:
                return False
            load[switches[sender]] += pairs[sender, receiver]
        for position in range(tail - 1, 0, -1):
            vertex = queue[position]
            if load[vertex] <= 0:
                continue
            next_links = 0
            for slot in range(first[vertex], first[vertex + 1]):
                if distance[target[links[slot]]] == distance[vertex] - 1:
                    next_links += 1
            for slot in range(first[vertex], first[vertex + 1]):
                if distance[target[links[slot]]] == distance[vertex] - 1:
                    carried[links[slot]] += load[vertex] / next_links
                    load[target[links[slot]]] += load[vertex] / next_links
    return True
