// Tables: TanStack Table sorts them, TanStack Virtual keeps long ones quick. Only rows in sight are in the document.
import { createColumnHelper, createSortedRowModel, rowSortingFeature, tableFeatures, useTable } from "@tanstack/preact-table";
import { Virtualizer, elementScroll, observeElementOffset, observeElementRect } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useReducer, useRef } from "preact/hooks";

/** Column is one column of a table of T. */
export interface Column<T> {
  name: string;
  /** value is what it is sorted by, and what is shown if there is no cell. */
  value(row: T): string | number;
  cell?(row: T): ComponentChildren;
  /** number sets its cells to the right. */
  number?: boolean;
}

interface Props<T> {
  /** label names the table for those who do not see it. */
  label: string;
  columns: Column<T>[];
  rows: T[];
  id(row: T): string;
  /** empty is shown in place of no rows. */
  empty: ComponentChildren;
  /** sortable: a click on a column's name sorts by it. A list that comes in pages has the API's order instead. */
  sortable?: boolean;
  /** onEnd is called when the last rows come in sight. */
  onEnd?(): void;
}

const rowPixels = 41;
const features = tableFeatures({ rowSortingFeature, sortedRowModel: createSortedRowModel() });

// What is not sorted needs no rows of the library: it would make one for each message of a long list.
const none: never[] = [];

const arrows = { asc: "▲", desc: "▼" };
const ariaSort = { asc: "ascending", desc: "descending" } as const;

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");
}

export function Table<T extends object>(props: Props<T>) {
  const { columns, rows } = props;
  const helper = useMemo(() => createColumnHelper<typeof features, T>(), []);
  const defined = useMemo(
    () =>
      helper.columns(
        columns.map((c) =>
          helper.accessor((row: T) => c.value(row), {
            id: c.name,
            header: c.name,
            sortFn: (a, b, id) => compare(a.getValue<string | number>(id), b.getValue<string | number>(id)),
          }),
        ),
      ),
    [columns],
  );
  const table = useTable({ features, columns: defined, data: props.sortable ? rows : none, enableSorting: props.sortable ?? false });
  const sorted = props.sortable ? table.getRowModel().rows.map((row) => row.original) : rows;
  const { scroller, items, before, after } = useVirtual(sorted.length);

  const last = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (rows.length > 0 && last >= sorted.length - 1) props.onEnd?.();
  }, [last, sorted.length]);

  if (rows.length === 0) return <p class="empty">{props.empty}</p>;
  return (
    <div class="scroller" ref={scroller} tabIndex={0} role="region" aria-label={props.label}>
      <table aria-rowcount={sorted.length + 1}>
        <thead>
          <tr>
            {table.getHeaderGroups()[0]!.headers.map((header, i) => {
              const order = props.sortable ? header.column.getIsSorted() : false;
              const name = columns[i]!.name;
              return (
                <th key={header.id} scope="col" class={columns[i]!.number ? "number" : ""} aria-sort={order ? ariaSort[order] : undefined}>
                  {props.sortable ? (
                    <button class="sort" onClick={() => header.column.toggleSorting()}>
                      {name} <span aria-hidden="true">{order ? arrows[order] : ""}</span>
                    </button>
                  ) : (
                    name
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {before > 0 && <tr class="filler" aria-hidden="true"><td colSpan={columns.length} style={{ height: `${before}px` }} /></tr>}
          {items.map(({ index }) => {
            const row = sorted[index]!;
            return (
              <tr key={props.id(row)} aria-rowindex={index + 2}>
                {columns.map((c) => (
                  <td key={c.name} class={c.number ? "number" : ""}>{c.cell ? c.cell(row) : c.value(row)}</td>
                ))}
              </tr>
            );
          })}
          {after > 0 && <tr class="filler" aria-hidden="true"><td colSpan={columns.length} style={{ height: `${after}px` }} /></tr>}
        </tbody>
      </table>
    </div>
  );
}

/** useVirtual says which of n rows are in sight in a scroller, and how many pixels are before and after them. */
function useVirtual(n: number) {
  const scroller = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((x: number) => x + 1, 0);
  const options = {
    count: n,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowPixels,
    overscan: 12,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    initialRect: { width: 0, height: 800 },
    onChange: () => redraw(0),
  };
  const virtual = useMemo(() => new Virtualizer<HTMLDivElement, HTMLTableRowElement>(options), []);
  virtual.setOptions(options);
  useEffect(() => virtual._didMount(), []);
  useEffect(() => virtual._willUpdate());
  const items = virtual.getVirtualItems();
  return {
    scroller,
    items,
    before: items[0]?.start ?? 0,
    after: virtual.getTotalSize() - (items.at(-1)?.end ?? 0),
  };
}
