// The controls of a what-if: the words that each offers, where it stands, and the values near the present ones.
import type { Change, Declaration, Form, Values } from "./api";
import { positions, wordOf } from "./format";

export interface Offer {
  field: Declaration | undefined;
  words: string[];
  isSlider: boolean;
  base: string; // the base's word; empty where it names none
  current: string; // the present word; empty as the base
  neutral: string; // where a slider stands
}

export function offer(control: Change, form: Form, base: string, value: string | undefined): Offer {
  const fields = form.groups.flatMap((group) => group.fields).concat(form.other_fields);
  const field = fields.find((other) => other.name === control.field);
  const baseWord = wordOf(base, control.pattern);
  const offered = control.words.length || control.factors.length ? control.words : (field?.choices ?? []);
  const words = positions(offered, baseWord ? control.factors : [], baseWord);
  const isSlider = words.length > 1 && words.every((word) => word !== "" && !Number.isNaN(Number(word)));
  const current = value === undefined ? baseWord : wordOf(value, control.pattern);
  const neutral = current || field?.default || (words.includes("1") ? "1" : (words[0] ?? ""));
  return { field, words, isSlider, base: baseWord, current, neutral };
}

// The values of a what-if: those of the base, those that every what-if has, and the changes.
export const changed = (form: Form, base: Values, changes: Record<string, string>): Values => ({
  ...base,
  ...form.what_if,
  ...changes,
});

const FARTHEST = 2; // positions of a slider

// The values that a next move may ask for, the likelier first: the control that moved last, a slider's neighbours, and
// every word of a list.
export function nearby(form: Form, base: Values, changes: Record<string, string>): Values[] {
  const last = Object.keys(changes).at(-1);
  const moves: { distance: number; values: Values }[] = [];
  for (const control of form.changes) {
    const { words, isSlider, neutral } = offer(
      control,
      form,
      String(base[control.field] ?? ""),
      changes[control.field],
    );
    const position = words.indexOf(neutral);
    words.forEach((word, index) => {
      const steps = isSlider ? Math.abs(index - position) : 1;
      if (index === position || steps > FARTHEST) return;
      const distance = control.field === last ? steps - FARTHEST : steps;
      const values = changed(form, base, { ...changes, [control.field]: control.pattern.replace("%", word) });
      moves.push({ distance, values });
    });
  }
  return moves.sort((move, other) => move.distance - other.distance).map((move) => move.values);
}
