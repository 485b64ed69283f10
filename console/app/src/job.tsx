// A job that redrives, purges or cancels what a filter selects, and how far it has come.
import { useEffect, useRef } from "preact/hooks";
import { type Schemas, answer, api } from "./api";
import { count, visible } from "./format";
import { Badge, Facts, Fault } from "./parts";
import { useLive } from "./poll";

type Job = Schemas["Job"];

const names = { cancel: "Cancel", redrive: "Redrive", purge: "Purge" };
const did = { cancel: "cancelled", redrive: "redriven", purge: "purged" };

interface Props {
  id: string;
  /** about is how many messages the job has, about; undefined: nobody knows. */
  about?: number;
  /** onEnd is called once the job is done. */
  onEnd(): void;
  /** onClose is called when somebody has seen enough. */
  onClose(): void;
}

const isDone = (job: Job) => job.state === "done";

/** Progress shows a job until somebody closes it. The job goes on, whether somebody looks or not. */
export function Progress({ id, about, onEnd, onClose }: Props) {
  const section = useRef<HTMLElement>(null);
  useEffect(() => section.current!.focus(), []); // and so in sight, whatever was pressed
  const { value: job, fault } = useLive(
    (signal) => answer(api.GET("/v1/jobs/{id}", { params: { path: { id } }, signal })),
    1000,
    [id],
    isDone,
  );
  const done = job && isDone(job);
  useEffect(() => {
    if (done) onEnd();
  }, [done]);
  return (
    <section ref={section} tabIndex={-1} class="card progress" aria-label="Progress">
      <Fault of={fault} />
      {job ? <Stand job={job} about={about} /> : !fault && <p aria-busy="true">Loading …</p>}
      <button class="secondary" onClick={onClose}>Close</button>
    </section>
  );
}

function Stand({ job, about }: { job: Job; about?: number }) {
  const seen = job.done + job.failed;
  const running = !isDone(job);
  const known = running ? about && Math.max(about, seen) : Math.max(seen, 1);
  return (
    <>
      <h2>{names[job.kind]} <Badge state={running ? "running" : "done"} /></h2>
      <Facts facts={Object.entries(job.filter).map(([name, value]) => [name, visible(String(value))])} />
      <progress aria-label="Messages that the job is through with" max={known || undefined} value={known ? (running ? seen : known) : undefined} />
      <p role="status">
        {running ? "The job is running" : "The job is done"}: {count(job.done)} {did[job.kind]}, {count(job.failed)} could not be
        {" "}{did[job.kind]}.{running && " It goes on if this page is left."}
      </p>
      {job.lastError && <p class="fault">{running ? "It waits" : "Why the last of these could not"}: {visible(job.lastError)}</p>}
    </>
  );
}
