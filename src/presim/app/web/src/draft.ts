// What was typed into a form, kept for a reload of its page in the same tab; another page forgets it.
import type { Values } from "./api";

export type Draft = { values: Values; job?: string };
const KEY = "presim-draft";

// The draft of the page at an address: none if another page was open last.
export function draftOf(address: string): Draft | undefined {
  const kept = sessionStorage.getItem(KEY);
  if (!kept) return undefined;
  const { address: of, draft } = JSON.parse(kept) as { address: string; draft: Draft };
  return of === address ? draft : undefined;
}

export function keepDraft(address: string, draft: Draft): void {
  sessionStorage.setItem(KEY, JSON.stringify({ address, draft }));
}

export function forgetDraft(): void {
  sessionStorage.removeItem(KEY);
}
