// Now: what the cluster does, live.
import { useMemo } from "preact/hooks";
import { useLocation } from "preact-iso";
import { type Schemas, answer, api } from "../api";
import { Chart, durations } from "../chart";
import { link } from "../filter";
import { bytes, count, ms, rate, visible } from "../format";
import { Figure, Missing, Page } from "../parts";
import { useLive } from "../poll";
import { actFor, caller, isAdmin, may, tenant } from "../session";

export function Now() {
  const { value: stats, fault } = useLive((signal) => answer(api.GET("/v1/stats", { signal })), 2000, [tenant.value]);
  return (
    <Page title="Now" about={`What is happening${stats ? ` ${whose(stats)}` : ""}: the last minute in figures, the last ten as lines.`} fault={fault}>
      {stats && <Figures stats={stats} />}
      {stats && <More />}
      {stats && <Lines stats={stats} />}
    </Page>
  );
}

/** whose says whose messages the figures count. Other pages show those of one tenant. */
function whose({ tenant }: Schemas["Stats"]): string {
  if (tenant) return `to the messages of tenant ${tenant}`;
  const own = caller.value!;
  return `in the whole cluster${own.asked && isAdmin.value ? ` (other pages show the messages of one tenant, now ${own.tenant})` : ""}`;
}

/** More leads to the pages that say more of what went wrong. */
function More() {
  return (
    <p class="row level">
      {may("sched:r") && <a href="/console/failed">Messages that failed, and why</a>}
      <a href="/console/channels">Channels, and why one is down</a>
    </p>
  );
}

function Figures({ stats }: { stats: Schemas["Stats"] }) {
  const { perSecond: per, lastMinute, pending } = stats;
  const late = lastMinute.latenessMs;
  const span = `in the last ${count(Math.round(lastMinute.seconds))} s`;
  return (
    <>
      <Missing nodes={stats.missing} means="what it did is not counted here" />
      <dl class="figures">
        <Figure name="Scheduled" value={`${rate(per.scheduled)}/s`} about={`${count(lastMinute.scheduled)} ${span}: new, replaced and moved messages`} />
        <Figure name="Delivered" value={`${rate(per.delivered)}/s`} about={`${count(lastMinute.delivered)} ${span}, confirmed by their channel`} />
        <Figure name="Failed" value={`${rate(per.failed)}/s`} alarm={lastMinute.failed > 0} about={`${count(lastMinute.failed)} ${span}: given up for good`} />
        <Figure name="Cancelled" value={`${rate(per.cancelled)}/s`} about={`${count(lastMinute.cancelled)} ${span}`} />
        <Figure name="Lateness, median" value={late ? ms(late.p50) : "–"} about={`Half of the deliveries ${span} were confirmed within about this time after they were due; what was redriven, or waited for a pause, was due long before`} />
        <Figure name="Lateness, p99" value={late ? ms(late.p99) : "–"} about="99 of 100 of them were confirmed within about this time after they were due" />
        {stats.overdueMs !== undefined && (
          <Figure name="Overdue" value={stats.overdueMs > 0 ? ms(stats.overdueMs) : "nothing"} alarm={stats.overdueMs > 10_000}
            about="How long the earliest due message that is not settled has been due, apart from what waits for a channel that is paused or down, or in a bucket without an owner" />
        )}
        {stats.inHand !== undefined && <Figure name="In hand" value={count(stats.inHand)} about="Messages in the memory of nodes: due soon, or at a broker" />}
        {pending && <Figure name="Pending" value={count(pending.messages)} about={`Messages that are stored and not yet settled, with ${bytes(pending.bytes)} of payload`} />}
        {stats.channelsDown !== undefined && (
          <Figure name="Channels down" value={count(stats.channelsDown)} alarm={stats.channelsDown > 0} to="/console/channels"
            about={`Channels whose broker does not take messages at present${isAdmin.value ? "" : ", of all tenants: an administrator sees which"}`} />
        )}
      </dl>
      {stats.down && <Down stats={stats} down={stats.down} />}
    </>
  );
}

/**
 * Down names channels that are down. Each leads to its page, for which an administrator acts for its tenant. They are
 * no links: those could be opened in another tab, which acts for another tenant.
 */
function Down({ stats, down }: { stats: Schemas["Stats"]; down: Schemas["DownChannel"][] }) {
  const { route } = useLocation();
  const open = (of: string, channel: string) => {
    actFor(of === caller.value!.tenant ? "" : of);
    route(link("channels", { channel }));
  };
  const more = Math.max(0, stats.channelsDown! - down.length);
  return (
    <section class="card down">
      <h2>Channels that are down</h2>
      <ul>
        {down.map(({ tenant, channel, reason }) => (
          <li key={`${tenant} ${channel}`}>
            <button class="link" onClick={() => open(tenant, channel)}>{visible(channel)}</button>
            {" "}<small>of tenant {tenant}</small> {visible(reason)}
          </li>
        ))}
      </ul>
      {more > 0 && <small>And {count(more)} more.</small>}
    </section>
  );
}

function Lines({ stats }: { stats: Schemas["Stats"] }) {
  const { times, rates, lateness } = useMemo(() => {
    const slots = stats.slots.filter((s) => s.seconds > 0);
    const per = (name: "scheduled" | "delivered" | "failed" | "cancelled") => slots.map((s) => s[name] / s.seconds);
    return {
      times: slots.map((s) => Date.parse(s.from)),
      rates: [
        { name: "scheduled", values: per("scheduled") },
        { name: "delivered", values: per("delivered") },
        { name: "failed", values: per("failed") },
        { name: "cancelled", values: per("cancelled") },
      ],
      lateness: [
        { name: "lateness p50", values: slots.map((s) => s.latenessMs?.p50 ?? null) },
        { name: "lateness p99", values: slots.map((s) => s.latenessMs?.p99 ?? null) },
      ],
    };
  }, [stats]);
  return (
    <div class="charts">
      <section>
        <h2>Messages per second</h2>
        <Chart label="Messages per second in the last ten minutes; the figures above say the latest" times={times} series={rates} write={rate} unit="messages/s" />
      </section>
      <section>
        <h2>Lateness</h2>
        <Chart label="Lateness in the last ten minutes; the figures above say the latest" times={times} series={lateness} write={ms} unit="after the due time" steps={durations} />
      </section>
    </div>
  );
}
