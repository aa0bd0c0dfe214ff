import { describe, expect, it } from "vitest";
import type { Declaration, Form } from "./api";
import { changed, nearby, offer } from "./controls";

const slider = { field: "bandwidth", label: "", words: ["0.5", "0.8", "1", "2", "4"], factors: [], pattern: "inter=%" };
const list = { field: "recompute", label: "", words: [], factors: [], pattern: "%" };
const form = {
  groups: [{ name: "", fields: [{ name: "recompute", choices: ["none", "full"], default: "none" } as Declaration] }],
  other_fields: [{ name: "bandwidth", choices: [] as string[], default: "" } as Declaration],
  changes: [
    { ...slider, note: "" },
    { ...list, note: "" },
  ],
  what_if: { framework: "eager" },
} as unknown as Form;

describe("offer", () => {
  it("stands at 1 where the base names no factor", () => {
    const { isSlider, neutral, current } = offer({ ...slider, note: "" }, form, "", undefined);
    expect([isSlider, neutral, current]).toEqual([true, "1", ""]);
  });
});

describe("changed", () => {
  it("gives every what-if its values, which the base may not have", () => {
    expect(changed(form, { tensor: "2", framework: "megatron" }, { tensor: "4" })).toEqual({
      tensor: "4",
      framework: "eager",
    });
  });
});

describe("nearby", () => {
  const words = (changes: Record<string, string>) =>
    nearby(form, {}, changes).map((values) => values.bandwidth ?? values.recompute);
  it("has the next positions of a slider first, and all words of a list", () => {
    expect(words({})).toEqual(["inter=0.8", "inter=2", "full", "inter=0.5", "inter=4"]);
  });
  it("has the control that moved last before others", () => {
    expect(words({ bandwidth: "inter=1", recompute: "full" })[0]).toBe("inter=1");
    expect(words({ recompute: "full", bandwidth: "inter=1" })[0]).toBe("inter=0.8");
  });
  it("follows the slider, and keeps other changes", () => {
    const near = nearby(form, {}, { bandwidth: "inter=4" });
    expect(near.map((values) => values.bandwidth)).toEqual(["inter=2", "inter=1", "inter=4"]);
    expect(near.every((values) => values.framework === "eager")).toBe(true);
  });
});
