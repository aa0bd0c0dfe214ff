// Files and folders dropped into the window: they are copied into the project folder, and a form that takes them names them.
import { useEffect, useState } from "preact/hooks";
import { upload } from "./api";

const EVENT = "presim-dropped";

// Calls back with the names of what was dropped; returns the function that ends it.
export function onDropped(act: (names: string[]) => void): () => void {
  const listen = (event: Event) => act((event as CustomEvent<string[]>).detail);
  addEventListener(EVENT, listen);
  return () => removeEventListener(EVENT, listen);
}

// All files of an entry, by their path below it.
async function filesOf(entry: FileSystemEntry, path = entry.name): Promise<[string, File][]> {
  if (entry.isFile)
    return [[path, await new Promise((done, failed) => (entry as FileSystemFileEntry).file(done, failed))]];
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const files: [string, File][] = [];
  for (;;) {
    const entries = await new Promise<FileSystemEntry[]>((done, failed) => reader.readEntries(done, failed));
    if (!entries.length) return files;
    for (const inner of entries) files.push(...(await filesOf(inner, `${path}/${inner.name}`)));
  }
}

export function Dropped({ mayChange }: { mayChange: boolean }) {
  const [text, setText] = useState("");
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    if (!mayChange) return;
    const over = (event: DragEvent) => {
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => event.relatedTarget === null && setOver(false);
    const drop = async (event: DragEvent) => {
      event.preventDefault();
      setOver(false);
      // Both before the first wait: afterwards the browser has forgotten what was dropped.
      const items = [...(event.dataTransfer?.items ?? [])].map((item) => ({
        entry: item.webkitGetAsEntry(),
        file: item.getAsFile(),
      }));
      const names = items.flatMap(({ entry, file }) => entry?.name ?? file?.name ?? []);
      try {
        for (const { entry, file } of items)
          for (const [name, content] of entry ? await filesOf(entry) : file ? [[file.name, file] as const] : []) {
            setText(`Copying ${name} …`);
            await upload(name, content);
          }
        setText(`In the project folder now: ${names.join(", ")}`);
        dispatchEvent(new CustomEvent(EVENT, { detail: names }));
      } catch (problem) {
        setText((problem as Error).message);
      }
    };
    const listeners = [
      ["dragover", over],
      ["dragleave", leave],
      ["drop", drop],
    ] as const;
    for (const [name, act] of listeners) addEventListener(name, act);
    return () => {
      for (const [name, act] of listeners) removeEventListener(name, act);
    };
  }, [mayChange]);
  return (
    <p class={`dropped ${isOver ? "over" : ""}`} role="status" hidden={!text && !isOver}>
      {isOver ? "Drop files here: they are copied into the project folder." : text}
    </p>
  );
}
