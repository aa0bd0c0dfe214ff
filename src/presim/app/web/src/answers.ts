// Answers of a what-if page, kept while it is open: those that were asked for, and those near the present position.
import { useEffect, useMemo } from "preact/hooks";
import { change, type Summary, type Values } from "./api";

const MOST_AHEAD_MS = 30_000; // of predicting ahead behind a move

export class Answers {
  private readonly kept = new Map<string, Promise<Summary>>();

  constructor(readonly question: string) {}

  // The answer of values, asked for once; a refused one is asked for again.
  ask(values: Values, isAhead = false): Promise<Summary> {
    const key = JSON.stringify(Object.entries(values).sort());
    const kept = this.kept.get(key);
    if (kept) return kept;
    const answer = change(this.question, values, isAhead);
    this.kept.set(key, answer);
    answer.catch(() => this.kept.delete(key));
    return answer;
  }
}

export const useAnswers = (question: string, name: string) => useMemo(() => new Answers(question), [question, name]);

// Predict what a next move may ask for, one after the other, until the position changes or a person waits.
export function useAhead(answers: Answers, near: Values[], isIdle: boolean) {
  useEffect(() => {
    if (!isIdle) return;
    let isCurrent = true;
    const began = performance.now();
    const predict = async () => {
      for (const values of near) {
        if (!isCurrent || performance.now() - began > MOST_AHEAD_MS) return;
        await answers.ask(values, true).catch(() => undefined);
      }
    };
    predict();
    return () => {
      isCurrent = false;
    };
  }, [answers, near, isIdle]);
}
