"""Shortest paths of flows, compiled by numba for large networks: one search for each receiver, or one for each flow."""

from __future__ import annotations

import numpy as np

from presim.network.kernels import Floats, Ints


def walk(
    first: Ints, links: Ints, source: Ints, target: Ints, passes: Ints, in_first: Ints, in_links: Ints,
    begins: Ints, ends: Ints, seed: int, paths: Ints,
) -> int:  # fmt: skip
    """Fill ``paths`` [flow, hop] with links of a shortest path for each flow; flows are ordered by their ends.

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
    for flow in range(len(begins)):
        end = ends[flow]
        if end != last:
            last = end
            for at in range(tail):
                distance[queue[at]] = -1
            distance[end] = 0
            queue[0] = end
            head, tail, level = 0, 1, 0
            while head < tail:
                vertex = queue[head]
                if distance[vertex] > level:  # all nearer vertices are known; stop if these include all senders
                    level = distance[vertex]
                    other = flow
                    while other < len(begins) and ends[other] == end and distance[begins[other]] >= 0:
                        other += 1
                    if other == len(begins) or ends[other] != end:
                        break
                head += 1
                if vertex != end and passes[vertex] == 0:
                    continue
                for at in range(in_first[vertex], in_first[vertex + 1]):
                    other = source[in_links[at]]
                    if distance[other] < 0 and not (
                        passes[vertex] == 2 and distance[vertex] == 1 and passes[other] == 0
                    ):
                        distance[other] = distance[vertex] + 1
                        queue[tail] = other
                        tail += 1
        vertex = begins[flow]
        if distance[vertex] < 0 or distance[vertex] > paths.shape[1]:
            return flow
        mixed = (begins[flow] * 7919 + end * 104729 + seed * 1299709) % 2147483647
        hop = 0
        while vertex != end:
            count = 0
            for at in range(first[vertex], first[vertex + 1]):
                other = target[links[at]]
                if (
                    distance[other] == distance[vertex] - 1
                    and (other == end or passes[other] > 0)
                    and not (passes[other] == 2 and passes[vertex] == 0 and distance[other] == 1)
                ):
                    count += 1
            mixed = (mixed * 48271 + 11) % 2147483647
            wanted = mixed // 7 % count
            for at in range(first[vertex], first[vertex + 1]):
                other = target[links[at]]
                if (
                    distance[other] == distance[vertex] - 1
                    and (other == end or passes[other] > 0)
                    and not (passes[other] == 2 and passes[vertex] == 0 and distance[other] == 1)
                ):
                    if wanted == 0:
                        paths[flow, hop] = links[at]
                        vertex = other
                        break
                    wanted -= 1
            hop += 1
    return -1


def meet(
    first: Ints, links: Ints, source: Ints, target: Ints, passes: Ints, in_first: Ints, in_links: Ints,
    begins: Ints, ends: Ints, seed: int, paths: Ints,
) -> int:  # fmt: skip
    """What `walk` fills, searched from both ends of each flow, which see few vertices of a large network.

    For flows between nodes: it does not keep NICs from joining two GPUs. 131,072 flows of 16,384 GPUs take 0.3 s of CPU
    time instead of 5 s.
    """
    vertices = len(first) - 1
    ahead, behind = np.full(vertices, -1, np.int64), np.full(vertices, -1, np.int64)  # hops from begin, to end
    front, back = np.zeros(vertices, np.int64), np.zeros(vertices, np.int64)  # vertices seen, level after level
    front_tail = back_tail = 0
    for flow in range(len(begins)):
        begin, end = begins[flow], ends[flow]
        for at in range(front_tail):
            ahead[front[at]] = -1
        for at in range(back_tail):
            behind[back[at]] = -1
        ahead[begin], behind[end] = 0, 0
        front[0], back[0] = begin, end
        front_level, front_tail, back_level, back_tail = 0, 1, 0, 1  # where the last level begins and ends
        met = begin == end
        while not met and front_tail > front_level and back_tail > back_level:
            if front_tail - front_level <= back_tail - back_level:
                stop = front_tail
                for place in range(front_level, stop):
                    vertex = front[place]
                    for at in range(first[vertex], first[vertex + 1]):
                        other = target[links[at]]
                        if ahead[other] < 0 and (other == end or passes[other] > 0):
                            ahead[other] = ahead[vertex] + 1
                            front[front_tail] = other
                            front_tail += 1
                            met = met or behind[other] >= 0
                front_level = stop
            else:
                stop = back_tail
                for place in range(back_level, stop):
                    vertex = back[place]
                    for at in range(in_first[vertex], in_first[vertex + 1]):
                        other = source[in_links[at]]
                        if behind[other] < 0 and (other == begin or passes[other] > 0):
                            behind[other] = behind[vertex] + 1
                            back[back_tail] = other
                            back_tail += 1
                            met = met or ahead[other] >= 0
                back_level = stop
        if not met:
            return flow
        hops = 1 << 60
        for at in range(front_tail):
            vertex = front[at]
            if behind[vertex] >= 0:
                hops = min(hops, ahead[vertex] + behind[vertex])
        if hops > paths.shape[1]:
            return flow
        # hops to the end of the vertices before those where the searches met, level after level towards the sender
        for at in range(front_tail - 1, -1, -1):
            vertex = front[at]
            if behind[vertex] < 0 or ahead[vertex] + behind[vertex] != hops:
                continue
            for place in range(in_first[vertex], in_first[vertex + 1]):
                other = source[in_links[place]]
                if ahead[other] == ahead[vertex] - 1 and ahead[other] >= 0 and behind[other] < 0:
                    behind[other] = behind[vertex] + 1
                    back[back_tail] = other
                    back_tail += 1
        mixed = (begin * 7919 + end * 104729 + seed * 1299709) % 2147483647
        vertex, hop = begin, 0
        while vertex != end:
            count = 0
            for at in range(first[vertex], first[vertex + 1]):
                other = target[links[at]]
                if behind[other] == behind[vertex] - 1 and behind[other] >= 0 and (other == end or passes[other] > 0):
                    count += 1
            mixed = (mixed * 48271 + 11) % 2147483647
            wanted = mixed // 7 % count
            for at in range(first[vertex], first[vertex + 1]):
                other = target[links[at]]
                if behind[other] == behind[vertex] - 1 and behind[other] >= 0 and (other == end or passes[other] > 0):
                    if wanted == 0:
                        paths[flow, hop] = links[at]
                        vertex = other
                        break
                    wanted -= 1
            hop += 1
    return -1


def divide(
    first: Ints, links: Ints, source: Ints, target: Ints, in_first: Ints, in_links: Ints, switches: Ints,
    pairs: Floats, carried: Floats,
) -> bool:  # fmt: skip
    """Add to ``carried`` [link] what flows between switches put on it, divided evenly at each fork of shortest paths.

    ``pairs`` [sender, receiver]: number of flows. Adjacency as of `walk`, of switches. False: a pair is not joined.
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
            for at in range(in_first[vertex], in_first[vertex + 1]):
                other = source[in_links[at]]
                if distance[other] < 0:
                    distance[other] = distance[vertex] + 1
                    queue[tail] = other
                    tail += 1
        for sender in range(len(switches)):
            if pairs[sender, receiver] > 0 and distance[switches[sender]] < 0:
                return False
            load[switches[sender]] += pairs[sender, receiver]
        for place in range(tail - 1, 0, -1):
            vertex = queue[place]
            if load[vertex] <= 0:
                continue
            count = 0
            for at in range(first[vertex], first[vertex + 1]):
                if distance[target[links[at]]] == distance[vertex] - 1:
                    count += 1
            for at in range(first[vertex], first[vertex + 1]):
                if distance[target[links[at]]] == distance[vertex] - 1:
                    carried[links[at]] += load[vertex] / count
                    load[target[links[at]]] += load[vertex] / count
    return True
