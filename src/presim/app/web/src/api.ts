// The JSON interface of presim.app.server, and its types.

export type Values = Record<string, string | boolean>;

export interface Declaration {
  name: string;
  flag: string;
  opposite_flag: string;
  type: "number" | "choice" | "switch" | "text";
  help: string;
  default: string;
  choices: string[];
  metavar: string;
  is_required: boolean;
  is_multiple: boolean;
}

// A limit of a bar: its share of the whole.
export interface Limit {
  name: string;
  share: number;
}

export interface Change {
  field: string;
  label: string;
  words: string[];
  factors: number[];
  pattern: string;
  note: string;
}

export interface Form {
  name: string;
  title: string;
  summary: string;
  groups: { name: string; fields: Declaration[] }[];
  other_fields: Declaration[];
  start: Values;
  changes: Change[];
  what_if: Values; // of every what-if
  suggestions: Record<string, string[]>;
}

export interface Figure {
  key: string;
  label: string;
  number: number | null;
  text: string;
  remark: string;
  better: number;
  unit: string;
  low: number | null; // of its 80 % interval
  high: number | null;
}

export interface Summary {
  subject: string;
  gpu: string;
  cluster: string;
  figures: Figure[];
  warning: string;
}

export interface Row {
  name: string;
  kind: string;
  question: string;
  command: string;
  version: string;
  date: string;
  summary: Summary;
  problem: string;
}

export interface Result extends Row {
  panes: string[];
  is_changeable: boolean;
  has_timelines: boolean;
  values: Values;
  log: string;
}

export interface Job {
  name: string;
  question: string;
  command: string;
  state: "queued" | "running" | "done" | "failed" | "cancelled";
  seconds: number;
  exit_code: number | null;
  progress: string; // the last line of the log while it runs
  log?: string;
  errors?: Record<string, string>;
}

export interface Project {
  folder: string;
  version: string;
  processes: number;
  may_change: boolean;
  questions: { name: string; title: string; summary: string }[];
  jobs: Job[];
  saved_jobs: { name: string; problem: string }[];
  results: Row[];
}

export interface Checked {
  command: string;
  python: string;
  errors: Record<string, string>;
  cluster: { markup: string; facts: string[] };
}

export interface Part {
  name: string;
  figure: string;
  share: number;
  css_class: string;
  letter: string;
}

export interface WaterfallBar {
  name: string;
  figure: string;
  start: number; // of the longest bar, as its size
  size: number;
  kind: "total" | "longer" | "shorter";
}

export type Block =
  | { type: "heading"; name: string; caption: string; level: number }
  | { type: "paragraph"; text: string }
  | { type: "lines"; text: string }
  | { type: "table"; columns: string[]; is_number: boolean[]; rows: string[][]; caption: string }
  | { type: "bar"; parts: Part[] }
  | { type: "waterfall"; name: string; bars: WaterfallBar[] };

export class Refused extends Error {
  constructor(
    message: string,
    readonly errors: Record<string, string>,
  ) {
    super(message);
  }
}

const KEY = "presim-token";
const fromAddress = new URLSearchParams(location.search).get("token");
if (fromAddress) sessionStorage.setItem(KEY, fromAddress);
export const token = fromAddress ?? sessionStorage.getItem(KEY) ?? "";

async function call<T>(path: string, init: RequestInit = {}): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(`/api/${path}`, { ...init, headers: { "x-presim-token": token } });
  } catch {
    throw new Refused("presim does not answer: is `presim app` still running?", {});
  }
  const content = await answer.json().catch(() => ({ error: `the server answered ${answer.status}`, errors: {} }));
  if (!answer.ok) throw new Refused(content.error, content.errors ?? {});
  return content as T;
}

const post = <T>(path: string, body: unknown) => call<T>(path, { method: "POST", body: JSON.stringify(body) });

// The project, at once and whenever it changes; returns the function that ends it. The browser connects again by itself.
// Only a page that is seen is connected: a browser has six connections to a server, and a seventh page would wait for ever.
export function watchProject(changed: (project: Project) => void, lost: () => void): () => void {
  let source: EventSource | undefined;
  const connect = () => {
    source = new EventSource(`/api/events?token=${encodeURIComponent(token)}`);
    source.onmessage = (event) => changed(JSON.parse(event.data));
    source.onerror = lost;
  };
  const close = () => {
    source?.close();
    source = undefined;
  };
  const follow = () => {
    if (document.visibilityState === "hidden") close();
    else if (!source) connect();
  };
  const listeners = [
    [document, "visibilitychange", follow],
    [window, "pagehide", close],
    [window, "pageshow", follow], // by the back button, as it was left
  ] as const;
  for (const [target, name, act] of listeners) target.addEventListener(name, act);
  follow();
  return () => {
    for (const [target, name, act] of listeners) target.removeEventListener(name, act);
    close();
  };
}

export const getProject = () => call<Project>("project");
export const getForm = (question: string) => call<Form>(`questions/${question}`);
export const check = (question: string, values: Values) => post<Checked>(`questions/${question}/check`, values);
export const start = (question: string, values: Values) => post<Job>(`questions/${question}/start`, values);
// Ahead: by a process of lower priority, before anybody asks.
export const change = (question: string, values: Values, isAhead = false) =>
  post<Summary>(`questions/${question}/change${isAhead ? "?ahead=1" : ""}`, values);
export const getJob = (name: string) => call<Job>(`jobs/${name}`);
export const cancel = (name: string) => post<object>(`jobs/${name}/cancel`, {});
export const getResult = (name: string) => call<Result>(`results/${name}`);
export const getPane = <T>(name: string, pane: string) => call<T>(`results/${name}/panes/${pane}`);
export const getComparison = (names: string[]) =>
  call<Block[]>(`comparisons/${names.map(encodeURIComponent).join(",")}`);
export const remove = (name: string) => call<object>(`results/${name}`, { method: "DELETE" });
export const upload = (name: string, file: Blob) =>
  call<object>(`files/${name.split("/").map(encodeURIComponent).join("/")}`, { method: "PUT", body: file });
export const pageAddress = (name: string) => `/api/results/${name}/page?token=${encodeURIComponent(token)}`;
export const simulateAddress = (directory: string) =>
  `#/ask/simulate/${encodeURIComponent(JSON.stringify({ directory }))}`;
export const timelinesAddress = (name: string) => `/view/${name}/?token=${encodeURIComponent(token)}`;
