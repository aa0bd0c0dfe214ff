// Which field of a form a dropped file is for.
import type { Declaration } from "./api";

// The field of a form that takes dropped files, by their first one's kind; undefined: none does.
export function fieldFor(fields: Pick<Declaration, "name">[], names: string[]): string | undefined {
  const [name = ""] = names;
  const kinds: [RegExp, string[]][] = [
    [/\.toml$/, ["cluster", "gpu"]],
    [/\.py$/, ["script"]],
    [/\.json$/, ["files", "job", "model", "words"]],
    [/\.(gz|sqlite|nsys-rep|db|et|pb|csv)$/, ["files"]],
    [/^[^.]+$/, ["directory", "job", "files"]], // a folder
  ];
  const wanted = kinds.find(([pattern]) => pattern.test(name))?.[1] ?? [];
  return wanted.find((other) => fields.some((field) => field.name === other));
}
