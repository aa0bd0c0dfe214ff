// One option of the command line as a field of a form.
import type { Declaration } from "./api";
import { labelled } from "./format";

// What stands in an empty field: how several values are written, else what a value is.
function placeholder({ flag, is_multiple, metavar }: Declaration): string {
  if (metavar.startsWith("V[")) return "e.g. 1,2,4";
  return is_multiple && flag ? "several: blanks between" : flag ? metavar : "";
}

export function FieldOf({
  field,
  value,
  error,
  suggestions,
  set,
}: {
  field: Declaration;
  value: string | boolean;
  error: string;
  suggestions: string[];
  set: (value: string | boolean) => void;
}) {
  const { label, hint } = labelled(field);
  const id = `field-${field.name}`;
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const common = { id, "aria-describedby": described, "aria-invalid": error ? true : undefined };
  const text = typeof value === "string" ? value : "";
  return (
    <div class={`field ${error ? "wrong" : ""}`} data-field={field.name}>
      <label for={id}>
        <span>
          {label}
          {field.is_required && <abbr title="needed"> *</abbr>}
        </span>
        <code>{field.flag}</code>
      </label>
      {field.type === "switch" ? (
        <input
          type="checkbox"
          {...common}
          checked={value === true}
          onChange={(event) => set(event.currentTarget.checked)}
        />
      ) : field.type === "choice" ? (
        <select {...common} value={text} onChange={(event) => set(event.currentTarget.value)}>
          <option value="">{field.default ? `${field.default} (default)` : "default"}</option>
          {field.choices
            .filter((choice) => choice !== field.default || choice === text)
            .map((choice) => (
              <option key={choice}>{choice}</option>
            ))}
        </select>
      ) : (
        <input
          type="text"
          {...common}
          inputMode={field.type === "number" ? "decimal" : undefined}
          autocomplete="off"
          spellcheck={false}
          value={text}
          placeholder={field.default ? `default: ${field.default}` : placeholder(field)}
          list={suggestions.length ? `${id}-list` : undefined}
          onInput={(event) => set(event.currentTarget.value)}
        />
      )}
      {suggestions.length > 0 && (
        <datalist id={`${id}-list`}>
          {suggestions.map((word) => (
            <option key={word} value={word} />
          ))}
        </datalist>
      )}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
      {error && (
        <p class="error" id={`${id}-error`} role="alert">
          {error}
        </p>
      )}
    </div>
  );
}
