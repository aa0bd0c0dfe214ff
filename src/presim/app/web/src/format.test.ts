import { describe, expect, it } from "vitest";
import type { Declaration } from "./api";
import { bandwidth, bytes, difference, elapsed, labelled, positions, rates, ticks, verdict, wordOf } from "./format";

const figure = (number: number | null, better: number) => ({
  key: "k",
  label: "",
  number,
  text: "",
  remark: "",
  better,
  unit: "",
  low: null,
  high: null,
});
const field = (help: string, flag = "--seq") => ({ name: "sequence", flag, help }) as Declaration;

describe("difference", () => {
  it("has a sign and few digits", () => {
    expect(difference(110, 100)).toBe("+10 %");
    expect(difference(99.4, 100)).toBe("−0.6 %");
    expect(difference(100.001, 100)).toBe("");
  });
  it("is empty where a number is not known", () => {
    expect(difference(null, 3)).toBe("");
    expect(difference(3, 0)).toBe("");
  });
});

describe("bytes and bandwidth", () => {
  it("are read at every size", () => {
    expect(bytes(4)).toBe("4 B");
    expect(bytes(2048)).toBe("2.0 KiB");
    expect(bandwidth(3.46e-5)).toBe("< 0.01");
    expect(bandwidth(39.08)).toBe("39.1");
    expect(bandwidth(null)).toBe("");
  });
});

describe("verdict", () => {
  it("follows the direction that is better", () => {
    expect(verdict(figure(2, 1), figure(1, 1))).toBe("better");
    expect(verdict(figure(2, -1), figure(1, -1))).toBe("worse");
    expect(verdict(figure(1, -1), figure(1, -1))).toBe("");
    expect(verdict(figure(2, 0), figure(1, 0))).toBe("");
  });
});

describe("labelled", () => {
  it("takes the label from the help", () => {
    expect(labelled(field("Sequence length: tokens per sample."))).toEqual({
      label: "Sequence length",
      hint: "Tokens per sample.",
    });
    expect(labelled(field("Number of nodes."))).toEqual({ label: "Number of nodes", hint: "" });
  });
  it("is the flag where the help begins with a condition", () => {
    expect(labelled(field("With --turns: tokens of such an answer.", "--tool-tokens"))).toEqual({
      label: "Tool tokens",
      hint: "With --turns: tokens of such an answer.",
    });
  });
  it("does not part an example or a notation", () => {
    expect(labelled(field("GPU by catalogue id, e.g. h100-sxm, or a TOML file; default: --cluster's."))).toEqual({
      label: "GPU by catalogue id",
      hint: "E.g. h100-sxm, or a TOML file; default: --cluster's.",
    });
    expect(labelled(field("Share of 0.9:1 of it (more).")).label).toBe("Share of 0.9:1 of it");
  });
  it("takes the flag where the help is long", () => {
    const help = "The first N blocks of each rank keep activations in host memory.";
    expect(labelled(field(help, "--offload-activations"))).toEqual({ label: "Offload activations", hint: help });
  });
});

describe("positions", () => {
  it("holds the base in order", () => {
    expect(positions(["1", "2", "4"], [], "3")).toEqual(["1", "2", "3", "4"]);
    expect(positions(["a", "b"], [], "c")).toEqual(["a", "b", "c"]);
    expect(positions([], [0.5, 1, 2], "8")).toEqual(["4", "8", "16"]);
  });
});

it("reads the word of a pattern", () => {
  expect(wordOf("inter=0.5", "inter=%")).toBe("0.5");
  expect(wordOf("intra=0.5", "inter=%")).toBe("");
  expect(wordOf("8", "%")).toBe("8");
});

it("says how long something runs", () => {
  expect(elapsed(1.26)).toBe("1.3 s");
  expect(elapsed(75)).toBe("1 min 15 s");
});

describe("moments and rates", () => {
  it("are round, and at most eight", () => {
    expect(ticks(124.6)).toEqual([0, 20, 40, 60, 80, 100, 120]);
    expect(ticks(0.09)).toEqual([0, 0.02, 0.04, 0.06, 0.08]);
    for (const end of [1e-4, 0.3, 1, 7, 99, 100, 1e5]) expect(ticks(end).length).toBeLessThanOrEqual(8);
  });
  it("surround what is sustained, else what was asked", () => {
    expect(rates(20, 4)).toEqual([2, 5, 10, 14, 16, 18, 20, 22, 26]);
    expect(rates(null, 4)[6]).toBe(4);
  });
});
