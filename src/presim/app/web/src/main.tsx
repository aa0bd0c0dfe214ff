// The page: its head, and one of the pages by the address behind #.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getProject } from "./api";
import { AskPage } from "./ask";
import { ChangePage } from "./change";
import { ComparePage } from "./compare";
import { forgetDraft } from "./draft";
import { Dropped } from "./drop";
import { ProjectPage } from "./project";
import { ResultPage } from "./result";
import { MayChange } from "./ui";
import "./style.css";

const THEMES = ["auto", "light", "dark"] as const;
const THEME_KEY = "presim-theme";

function useAddress(): string[] {
  const read = () => location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const [parts, setParts] = useState(read);
  useEffect(() => {
    const changed = () => {
      forgetDraft(); // of the page that was left; a reload does not come here
      setParts(read());
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parts;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem(THEME_KEY) ?? "auto");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem(THEME_KEY, theme);
  }, [theme]);
  return (
    <label class="theme">
      Colours{" "}
      <select value={theme} onChange={(event) => setTheme(event.currentTarget.value)}>
        {THEMES.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

function Page({ parts }: { parts: string[] }) {
  const [page = "", name = ""] = parts;
  if (page === "ask") return <AskPage key={parts.join("/")} question={name} from={parts[2] ?? ""} />;
  if (page === "result") return <ResultPage key={name} name={name} pane={parts[2] ?? ""} />;
  if (page === "change") return <ChangePage key={name} name={name} />;
  if (page === "compare") return <ComparePage key={name} names={name.split(",").filter(Boolean)} />;
  return <ProjectPage />;
}

function App() {
  const parts = useAddress();
  const [folder, setFolder] = useState("");
  const [mayChange, setMayChange] = useState(true);
  useEffect(() => {
    getProject().then(
      (project) => {
        setFolder(project.folder);
        setMayChange(project.may_change);
      },
      () => undefined,
    );
  }, []);
  useEffect(() => {
    document.title = ["presim", ...parts.filter(Boolean)].join(" · ");
    scrollTo(0, 0);
  }, [parts]);
  return (
    <>
      <header class="head">
        <a class="brand" href="#/">
          presim
        </a>
        <nav aria-label="Pages">
          <a href="#/" aria-current={parts[0] ? undefined : "page"}>
            Project
          </a>
        </nav>
        <span class="folder dim" title={folder}>
          {folder}
        </span>
        <Theme />
      </header>
      <main>
        <Dropped mayChange={mayChange} />
        <MayChange.Provider value={mayChange}>
          <Page parts={parts} />
        </MayChange.Provider>
      </main>
    </>
  );
}

const root = document.getElementById("app");
if (root) render(<App />, root);
