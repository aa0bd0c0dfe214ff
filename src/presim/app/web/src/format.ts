// Figures as people read them, and what a form shows of an option.
import type { Declaration, Figure } from "./api";

const MOST_LABEL = 44; // letters of a label

// The difference of a number to its base in percent, with its sign; empty where it is none.
export function difference(number: number | null, base: number | null): string {
  if (number === null || base === null || base === 0 || number === base) return "";
  const percent = (number / base - 1) * 100;
  const size = Math.abs(percent);
  const digits = size < 0.05 ? 2 : size < 9.95 ? 1 : 0;
  const text = size.toFixed(digits);
  return Number(text) === 0 ? "" : `${percent > 0 ? "+" : "−"}${text} %`;
}

// Whether a difference is good or bad news: a word for a class and for readers of the screen.
export function verdict(figure: Figure, base: Figure | undefined): "better" | "worse" | "" {
  if (!base || figure.number === null || base.number === null || !figure.better) return "";
  if (!difference(figure.number, base.number)) return "";
  return figure.number > base.number === figure.better > 0 ? "better" : "worse";
}

export function elapsed(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes} min ${Math.floor(seconds % 60)} s`;
}

export function bytes(size: number): string {
  if (size >= 2 ** 30) return `${(size / 2 ** 30).toFixed(2)} GiB`;
  if (size >= 2 ** 20) return `${(size / 2 ** 20).toFixed(1)} MiB`;
  return size >= 2 ** 10 ? `${(size / 2 ** 10).toFixed(1)} KiB` : `${Math.round(size)} B`;
}

export function time(seconds: number): string {
  const size = Math.abs(seconds);
  if (size >= 1) return `${seconds.toPrecision(3)} s`;
  if (size >= 1e-3) return `${(seconds * 1e3).toPrecision(3)} ms`;
  return size >= 1e-6 ? `${(seconds * 1e6).toPrecision(3)} us` : `${(seconds * 1e9).toFixed(0)} ns`;
}

export function number(value: number): string {
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

// GB/s; a few bytes at a time have a rate of no use to anyone.
export function bandwidth(rate: number | null): string {
  if (!rate) return "";
  return rate < 0.01 ? "< 0.01" : number(rate);
}

// Round moments from 0 to an end, at most eight, at 1, 2 or 5 times a power of ten.
export function ticks(end: number): number[] {
  const power = 10 ** Math.floor(Math.log10(end / 4));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => end / candidate <= 7) ?? 10 * power;
  return Array.from({ length: Math.floor(end / step) + 1 }, (_, index) => Number((index * step).toPrecision(6)));
}

const LOADS = [0.1, 0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.3]; // shares of what the engines sustain

// The rates of load curves: around what the engines sustain, else around the rate that was asked for.
export function rates(sustainable: number | null, asked: number): number[] {
  const base = sustainable || asked;
  return [...new Set(LOADS.map((share) => Number((share * base).toPrecision(2))))];
}

// What help says first, up to a stop, a bracket or an example: "e.g. 7,8", ttft:500 and 0.9 are of one piece.
const LABEL = /^(What-if: )?((?:e\.g\.|[^:;.(]|[:.](?=\S))+?)(?:[:;.](?=\s|$)|(?=\s\()|,(?= e\.g\. )|$)\s*(.*)$/s;

// A condition or a reference, which names nothing by itself: "With --turns: ...", "The same for ...".
const NO_NOUN = /^(With|Of|In|Same|The same|At|\d)\b/;

// The label of a field: what its help says first, else its flag; and what is left of the help.
export function labelled(field: Declaration): { label: string; hint: string } {
  const match = LABEL.exec(field.help);
  const text = match?.[2]?.trim() ?? "";
  if (text && text.length <= MOST_LABEL && !NO_NOUN.test(text))
    return { label: capital(text), hint: capital(match?.[3] ?? "") };
  return { label: capital((field.flag || field.name).replace(/^--/, "").replaceAll("-", " ")), hint: field.help };
}

// Words such as zero1 and fp8-row are written as they are.
export const capital = (text: string) =>
  /^[a-z]+[\s:;,.]/.test(`${text} `) ? text.charAt(0).toUpperCase() + text.slice(1) : text;

// The words of a slider, in order: the listed ones, or the base times each factor, with the base itself among them.
export function positions(words: string[], factors: number[], base: string): string[] {
  const listed = factors.length
    ? factors.map((factor) => String(Number((Number(base) * factor).toPrecision(3))))
    : words;
  const all = base && !listed.some((word) => Number(word) === Number(base)) ? [...listed, base] : [...listed];
  return all.every((word) => word !== "" && !Number.isNaN(Number(word)))
    ? all.sort((one, other) => Number(one) - Number(other))
    : all;
}

// The word that a pattern's value holds, as 0.5 in inter=0.5; empty where the value has another form.
export function wordOf(value: string, pattern: string): string {
  const [before = "", after = ""] = pattern.split("%");
  if (!value.startsWith(before) || !value.endsWith(after)) return "";
  return value.slice(before.length, value.length - after.length);
}

// The change of a number to a reference, with its sign; in words where it is none.
export function change(value: number, reference: number): string {
  return difference(value, reference) || "as the first";
}

// Rows as a CSV file; texts with commas or quotation marks are quoted.
export function csv(rows: (string | number | boolean | null | undefined)[][]): string {
  const cell = (value: string | number | boolean | null | undefined) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

// Have the browser save rows as a CSV file of a name.
export function saveCsv(name: string, rows: (string | number | boolean | null | undefined)[][]): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv(rows)], { type: "text/csv" }));
  link.download = `${name}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}
