// A form for a field: each part of a value has its control, what is wrong with it, and what is known of it.

import type { ComponentChildren, JSX } from "preact";
import { useId } from "preact/hooks";
import { keyOf, type Fault, type Path } from "./check";
import { begunDraft, emptyDraft, newId, type Draft, type Entry } from "./draft";
import { hintOf, shortOf, typeOf } from "./hints";
import { TextControl } from "./text-control";
import type { Field, Property } from "./schema";
import "./form.css";

export interface FormProps {
  field: Field;
  draft: Draft;
  onChange: (draft: Draft) => void;
  faults: readonly Fault[];
  /** What a parameter is, by its name: from the docstring of its verb. */
  notes?: Record<string, string>;
}

/** The controls of all properties of an object, without a frame around them. */
export function SchemaForm({ field, draft, onChange, faults, notes = {} }: FormProps): JSX.Element {
  const id = useId();
  const scope: Scope = { id, faults: byKey(faults) };
  if (field.kind !== "object") return <Part scope={scope} name="value" isRequired path={[]} field={field} draft={draft} onChange={onChange} note="" />;
  if (field.properties.length === 0 && field.extra === null) return <p class="form-empty">This verb takes no parameters.</p>;
  return (
    <div class="form">
      <ObjectParts scope={scope} path={[]} field={field} draft={draft} onChange={onChange} notes={notes} />
      <Faults scope={scope} path={[]} />
    </div>
  );
}

interface Scope {
  id: string;
  faults: Map<string, string[]>;
}

interface PartProps<F extends Field = Field> {
  scope: Scope;
  path: Path;
  field: F;
  draft: Draft;
  onChange: (draft: Draft) => void;
}

/** The id of a control. Names may contain spaces, which separate ids. */
function idIn(scope: Scope, path: Path): string {
  return `${scope.id}${encodeURI(keyOf(path))}`;
}

function byKey(faults: readonly Fault[]): Map<string, string[]> {
  const found = new Map<string, string[]>();
  for (const { path, message } of faults) {
    const key = keyOf(path);
    found.set(key, [...(found.get(key) ?? []), message]);
  }
  return found;
}

type ObjectField = Extract<Field, { kind: "object" }>;
type ListField = Extract<Field, { kind: "list" }>;
type UnionField = Extract<Field, { kind: "union" }>;

function ObjectParts({ scope, path, field, draft, onChange, notes = {} }: PartProps<ObjectField> & { notes?: Record<string, string> }): JSX.Element {
  const { named, more } = partsOf(draft);
  const change = (name: string, part: Draft): void => onChange({ is: "object", named: { ...named, [name]: part }, more });
  // What is required comes first; a discriminator is set by the choice of its alternative.
  const shown = field.properties.filter(({ field: inner }) => inner().kind !== "constant");
  const ordered = [...shown.filter((one) => one.required), ...shown.filter((one) => !one.required)];
  return (
    <>
      {ordered.map((property: Property) => (
        <Part
          key={property.name}
          scope={scope}
          path={[...path, property.name]}
          name={property.name}
          isRequired={property.required}
          field={property.field()}
          draft={named[property.name] ?? { is: "absent" }}
          onChange={(part) => change(property.name, part)}
          note={notes[property.name] ?? ""}
        />
      ))}
      {field.extra !== null && <MapParts scope={scope} path={path} field={field} draft={draft} onChange={onChange} />}
    </>
  );
}

function partsOf(draft: Draft): { named: Record<string, Draft>; more: Entry[] } {
  return draft.is === "object" ? draft : { named: {}, more: [] };
}

/** The entries of a map: names that the user chooses, with values. */
function MapParts({ scope, path, field, draft, onChange }: PartProps<ObjectField>): JSX.Element | null {
  if (field.extra === null) return null;
  const { named, more } = partsOf(draft);
  const inner = field.extra();
  const change = (entries: typeof more): void => onChange({ is: "object", named, more: entries });
  const idOf = (entry: number): string => `${idIn(scope, path)}/name-${entry}`;
  return (
    <div class="form-entries">
      {more.map((entry, number) => (
        <div class="form-entry" key={entry.id}>
          <div class="form-name">
            <label for={idOf(entry.id)}>name</label>
            {field.names.values === null ? (
              <input
                id={idOf(entry.id)}
                value={entry.name}
                onInput={(event) => change(more.with(number, { ...entry, name: event.currentTarget.value }))}
              />
            ) : (
              <select id={idOf(entry.id)} value={entry.name} onChange={(event) => change(more.with(number, { ...entry, name: event.currentTarget.value }))}>
                <option value="">choose…</option>
                {field.names.values.map((name) => <option key={name} value={name}>{name}</option>)}
              </select>
            )}
          </div>
          <Part
            scope={scope}
            path={[...path, entry.name]}
            name="value"
            spokenName={`value of ${entry.name || `entry ${number + 1}`}`}
            isRequired
            field={inner}
            draft={entry.draft}
            onChange={(part) => change(more.with(number, { ...entry, draft: part }))}
            note=""
          />
          <button type="button" class="form-small" aria-label={`Remove entry ${entry.name || number + 1}`} onClick={() => change(more.toSpliced(number, 1))}>
            Remove
          </button>
        </div>
      ))}
      <button type="button" class="form-small" onClick={() => change([...more, { id: newId(), name: "", draft: emptyDraft(inner) }])}>
        Add an entry
      </button>
    </div>
  );
}

interface NamedPartProps extends PartProps {
  name: string;
  /** For screen readers, where the name alone says too little. */
  spokenName?: string;
  isRequired: boolean;
  note: string;
}

/** One value with its name: a control, or a frame with those of its parts. */
function Part(props: NamedPartProps): JSX.Element {
  const { scope, path, name, spokenName, field, draft, onChange, isRequired, note } = props;
  const key = keyOf(path);
  const id = idIn(scope, path);
  const isCompound = field.kind === "object" || field.kind === "list" || field.kind === "union";
  const told = note || field.description;
  // The browser's own date field has no room for a default.
  const byDefault = !isRequired && field.kind === "text" && field.format === "date" && field.default ? `default: ${shortOf(field.default)}` : "";
  const hint = [told, hintOf(field), byDefault].filter(Boolean).join(" · ");
  const describedBy = [hint && `${id}-hint`, scope.faults.has(key) && `${id}-fault`].filter(Boolean).join(" ") || undefined;
  const badge = (
    <>
      <span class="form-type">{typeOf(field)}</span>
      {isRequired && <span class="form-required">required</span>}
      {field.deprecated && <span class="form-deprecated">deprecated</span>}
    </>
  );
  const footer = (
    <>
      {hint && <p class="form-hint" id={`${id}-hint`}>{hint}</p>}
      <Faults scope={scope} path={path} />
    </>
  );
  if (!isCompound) {
    return (
      <div class={`form-part${scope.faults.has(key) ? " is-wrong" : ""}`}>
        <div class="form-label">
          <label for={id}>{name}</label>
          {badge}
        </div>
        <div class="form-control">
          <Control id={id} label={spokenName} describedBy={describedBy} isWrong={scope.faults.has(key)} field={field} draft={draft} onChange={onChange} isRequired={isRequired} />
          <NullBox id={id} name={spokenName ?? name} field={field} draft={draft} isRequired={isRequired} onChange={onChange} />
        </div>
        {footer}
      </div>
    );
  }
  const isOpen = draft.is !== "absent" && draft.is !== "null";
  return (
    <fieldset class={`form-part form-frame${scope.faults.has(key) ? " is-wrong" : ""}`} aria-describedby={describedBy}>
      <legend class="form-label">
        <span class="form-legend">{spokenName ?? name}</span>
        {badge}
        {!isRequired &&
          (isOpen ? (
            <button type="button" class="form-small" onClick={() => onChange({ is: "absent" })} aria-label={`Clear ${spokenName ?? name}`}>
              Clear
            </button>
          ) : (
            <button type="button" class="form-small" onClick={() => onChange(begunDraft(field))} aria-label={`Set ${spokenName ?? name}`}>
              Set
            </button>
          ))}
      </legend>
      <NullBox id={id} name={spokenName ?? name} field={field} draft={draft} isRequired={isRequired} onChange={onChange} />
      {isOpen ? (
        <Compound scope={scope} path={path} field={field} draft={draft} onChange={onChange} id={id} name={spokenName ?? name} />
      ) : (
        draft.is === "absent" && <p class="form-hint">{field.default === undefined || field.default === null ? "not set" : `default: ${shortOf(field.default)}`}</p>
      )}
      {footer}
    </fieldset>
  );
}

function Compound({ scope, path, field, draft, onChange, id, name }: PartProps & { id: string; name: string }): JSX.Element | null {
  switch (field.kind) {
    case "object":
      return <ObjectParts scope={scope} path={path} field={field} draft={draft} onChange={onChange} />;
    case "list":
      return <ListParts scope={scope} path={path} field={field} draft={draft} onChange={onChange} name={name} />;
    case "union":
      return <UnionParts scope={scope} path={path} field={field} draft={draft} onChange={onChange} id={id} name={name} />;
    default:
      return null;
  }
}

function ListParts({ scope, path, field, draft, onChange, name }: PartProps<ListField> & { name: string }): JSX.Element {
  const items = draft.is === "list" ? draft.items : [];
  const change = (changed: typeof items): void => onChange({ is: "list", items: changed });
  const fixed = field.first.length;
  const rest = field.rest;
  const isFull = field.maximum !== null && items.length >= field.maximum;
  return (
    <div class="form-items">
      {items.map((item, number) => {
        const inner = field.first[number] ?? rest;
        if (inner === null) return null;
        const isFree = number >= fixed;
        return (
          <div class="form-item" key={item.id}>
            <Part
              scope={scope}
              path={[...path, number]}
              name={`${number + 1}`}
              spokenName={`${name}, item ${number + 1}`}
              isRequired
              field={inner()}
              draft={item.draft}
              onChange={(part) => change(items.with(number, { ...item, draft: part }))}
              note=""
            />
            {isFree && (
              <div class="form-item-tools">
                <button
                  type="button"
                  class="form-small"
                  disabled={number <= fixed}
                  aria-label={`Move item ${number + 1} of ${name} up`}
                  onClick={() => {
                    const before = items[number - 1];
                    if (before !== undefined) change(items.with(number, before).with(number - 1, item));
                  }}
                >
                  ↑
                </button>
                <button type="button" class="form-small" aria-label={`Remove item ${number + 1} of ${name}`} onClick={() => change(items.toSpliced(number, 1))}>
                  Remove
                </button>
              </div>
            )}
          </div>
        );
      })}
      {rest !== null && (
        <button type="button" class="form-small" disabled={isFull} aria-label={`Add an item to ${name}`} onClick={() => change([...items, { id: newId(), draft: emptyDraft(rest()) }])}>
          Add an item
        </button>
      )}
    </div>
  );
}

function UnionParts({ scope, path, field, draft, onChange, id, name }: PartProps<UnionField> & { id: string; name: string }): JSX.Element {
  const index = draft.is === "union" ? draft.index : 0;
  const branch = field.branches[index];
  const inner = branch?.field();
  return (
    <div class="form-union">
      <select
        id={id}
        aria-label={`Kind of ${name}`}
        value={String(index)}
        onChange={(event) => {
          const chosen = Number(event.currentTarget.value);
          const other = field.branches[chosen];
          if (other !== undefined) onChange({ is: "union", index: chosen, inner: emptyDraft(other.field()) });
        }}
      >
        {field.branches.map(({ title }, number) => <option key={title} value={String(number)}>{title}</option>)}
      </select>
      {inner !== undefined && draft.is === "union" && (
        <UnionInner scope={scope} path={path} field={inner} draft={draft.inner} onChange={(part) => onChange({ is: "union", index, inner: part })} id={`${id}-inner`} name={name} />
      )}
    </div>
  );
}

/** What a chosen alternative takes: in the frame of the union, at whose place it stands. */
function UnionInner({ scope, path, field, draft, onChange, id, name }: PartProps & { id: string; name: string }): JSX.Element {
  if (field.kind === "constant") return <code>{JSON.stringify(field.value)}</code>;
  if (field.kind === "object" || field.kind === "list" || field.kind === "union") {
    return <Compound scope={scope} path={path} field={field} draft={draft} onChange={onChange} id={id} name={name} />;
  }
  const isWrong = scope.faults.has(keyOf(path));
  return <Control id={id} label={name} describedBy={undefined} isWrong={isWrong} field={field} draft={draft} onChange={onChange} isRequired />;
}

interface ControlProps {
  id: string;
  /** Its name to screen readers, where its label says too little. */
  label: string | undefined;
  describedBy: string | undefined;
  isWrong: boolean;
  field: Field;
  draft: Draft;
  onChange: (draft: Draft) => void;
  isRequired: boolean;
}

/** The control of a value without parts. */
function Control({ id, label, describedBy, isWrong, field, draft, onChange, isRequired }: ControlProps): JSX.Element {
  const common = { id, "aria-describedby": describedBy, "aria-invalid": isWrong ? ("true" as const) : undefined, "aria-label": label };
  const isNull = draft.is === "null";
  if (field.kind === "constant") return <code id={id}>{JSON.stringify(field.value)}</code>;
  if (field.kind === "choice") {
    const index = draft.is === "chosen" ? draft.index : -1;
    const none = isRequired ? "choose…" : field.default === undefined ? "not set" : `default: ${shortOf(field.default)}`;
    return (
      <select
        {...common}
        disabled={isNull}
        aria-required={isRequired}
        value={String(index)}
        onChange={(event) => {
          const chosen = Number(event.currentTarget.value);
          onChange(chosen < 0 && !isRequired ? { is: "absent" } : { is: "chosen", index: chosen });
        }}
      >
        <option value="-1">{none}</option>
        {field.values.map((value, number) => <option key={number} value={String(number)}>{typeof value === "string" ? value : JSON.stringify(value)}</option>)}
      </select>
    );
  }
  const text = draft.is === "typed" ? draft.text : "";
  return (
    <TextControl
      attributes={{ ...common, disabled: isNull, "aria-required": isRequired, placeholder: placeholderOf(field, isRequired) }}
      field={field}
      text={text}
      onText={(typed) => onChange(typed === "" && !isRequired ? { is: "absent" } : { is: "typed", text: typed })}
    />
  );
}

function placeholderOf(field: Field, isRequired: boolean): string {
  if (!isRequired && field.default !== undefined) return field.default === null ? "none" : `default: ${shortOf(field.default)}`;
  if (field.example !== undefined) return `such as ${shortOf(field.example)}`;
  return field.kind === "any" ? "JSON" : "";
}

/** Null by its own box, where leaving the field out would mean something else. */
function NullBox({ id, name, field, draft, isRequired, onChange }: { id: string; name: string; field: Field; draft: Draft; isRequired: boolean; onChange: (draft: Draft) => void }): JSX.Element | null {
  if (!field.nullable || (!isRequired && (field.default === null || field.default === undefined))) return null;
  return (
    <label class="form-null">
      <input
        type="checkbox"
        id={`${id}-null`}
        checked={draft.is === "null"}
        aria-label={`${name} is null`}
        onChange={(event) => onChange(event.currentTarget.checked ? { is: "null" } : isRequired ? emptyDraft(field) : { is: "absent" })}
      />
      null
    </label>
  );
}

function Faults({ scope, path }: { scope: Scope; path: Path }): ComponentChildren {
  const key = keyOf(path);
  const found = scope.faults.get(key);
  if (found === undefined) return null;
  return <p class="form-fault" id={`${idIn(scope, path)}-fault`}>{found.join("; ")}</p>;
}
