import { describe, expect, it } from "vitest";
import { fieldFor } from "./drop_field";
import { csv } from "./format";

const fields = (...names: string[]) => names.map((name) => ({ name }));

describe("the field that takes a dropped file", () => {
  it("goes by the file's kind and the form's fields", () => {
    expect(fieldFor(fields("model", "gpu", "cluster"), ["config.json"])).toBe("model");
    expect(fieldFor(fields("words", "gpu"), ["config.json"])).toBe("words");
    expect(fieldFor(fields("model", "gpu", "cluster"), ["mine.toml"])).toBe("cluster");
    expect(fieldFor(fields("directory", "gpu"), ["job"])).toBe("directory");
    expect(fieldFor(fields("files", "gpu"), ["a.pt.trace.json", "b.pt.trace.json"])).toBe("files");
  });
  it("is none where the form takes no such file", () => {
    expect(fieldFor(fields("model", "gpu"), ["photo.png"])).toBeUndefined();
    expect(fieldFor(fields("model", "gpu"), ["job"])).toBeUndefined();
    expect(fieldFor(fields("model"), [])).toBeUndefined();
  });
});

describe("rows as CSV", () => {
  it("quotes what would break a row", () => {
    expect(
      csv([
        ["a", "b"],
        ["1,2", 'say "x"'],
        [null, true],
      ]),
    ).toBe('a,b\r\n"1,2","say ""x"""\r\n,true\r\n');
  });
});
