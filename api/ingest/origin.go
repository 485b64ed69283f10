package ingest

import (
	"strings"

	"github.com/postdate/postdate"
)

// Origin is a source as the operator writes it: [tenant@][form+]broker:name[=[!]channel].
type Origin struct{ Tenant, Form, Broker, Name, Channel string }

// FormTask is the form of a source of task definitions, and FormEtf1 that of records of
// etf1/kafka-message-scheduler. The form "" is that of schedules.
const (
	FormTask = "task"
	FormEtf1 = "etf1"
)

// Source is the origin's queue or topic.
func (o Origin) Source() string { return o.Broker + ":" + o.Name }

// ParseOrigin reads an origin. It refuses what can be read in two ways: a tenant may contain @, :
// and =, and so may the name of a queue. For example, rabbitmq:a@kafka:b may be a queue, or a
// topic of the tenant rabbitmq:a.
func ParseOrigin(text string) (o Origin, err error) {
	var readings []Origin
	badTenant := error(nil)
	for at := range len(text) {
		before, name, ok := strings.Cut(text[at:], ":")
		form, broker, formed := strings.Cut(before, "+")
		if !formed {
			form, broker = "", before
		}
		if !ok || at > 0 && text[at-1] != '@' || formed && form != FormTask && form != FormEtf1 ||
			broker != "rabbitmq" && broker != "kafka" {
			continue
		}
		o := Origin{Tenant: postdate.DefaultTenant, Form: form, Broker: broker}
		if o.Name, o.Channel, _ = strings.Cut(name, "="); at > 0 {
			o.Tenant = text[:at-1]
		}
		if err := postdate.CheckTenant(o.Tenant); err != nil {
			badTenant = invalid("--ingest %q: %w", text, err)
		} else if o.Name != "" {
			readings = append(readings, o)
		}
	}
	switch {
	case len(readings) == 0 && badTenant != nil:
		return o, badTenant
	case len(readings) == 0:
		return o, invalid("--ingest %q is not of the form rabbitmq:QUEUE, kafka:TOPIC, task+kafka:TOPIC or "+
			"etf1+kafka:TOPIC, with TENANT@ before it unless the messages are of the tenant default, and =CHANNEL "+
			"behind it where messages do not say theirs, or =!CHANNEL for all, like "+
			"acme@rabbitmq:in=rabbitmq:orders/{routing-key}", text)
	case len(readings) > 1:
		return o, invalid("--ingest %q can be read in two ways, as %s of the tenant %s and as %s of the tenant %s: "+
			"take a queue, channel and tenant without @rabbitmq: and @kafka: in their names", text,
			readings[0].Source(), readings[0].Tenant, readings[1].Source(), readings[1].Tenant)
	case readings[0].Form == FormEtf1 && readings[0].Broker != "kafka":
		return o, invalid("--ingest %q: the schedules of kafka-message-scheduler come from a topic of Kafka: write "+
			"etf1+kafka:TOPIC", text)
	case readings[0].Form == FormTask && readings[0].Broker != "kafka":
		return o, invalid("--ingest %q: task definitions come from a topic of Kafka: write task+kafka:TOPIC", text)
	}
	return readings[0], nil
}
