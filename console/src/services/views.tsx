// A choice between few views: radio buttons that look like one control.

import { useId } from "preact/hooks";

export interface ViewsProps<T extends string> {
  name: string;
  views: readonly (readonly [T, string])[];
  chosen: T;
  onChoose: (view: T) => void;
}

export function Views<T extends string>({ name, views, chosen, onChoose }: ViewsProps<T>) {
  const group = useId();
  return (
    <fieldset class="segments views">
      <legend class="hidden">{name}</legend>
      {views.map(([view, title]) => (
        <label key={view}>
          <input type="radio" name={group} checked={view === chosen} onChange={() => onChoose(view)} />
          <span>{title}</span>
        </label>
      ))}
    </fieldset>
  );
}
