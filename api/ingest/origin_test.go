package ingest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postdate/postdate"
)

func TestParseOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"rabbitmq:in":           "default rabbitmq in ",
		"kafka:in=rabbitmq:out": "default kafka in rabbitmq:out",
		"acme@rabbitmq:in=!rabbitmq:orders/{routing-key}": "acme rabbitmq in !rabbitmq:orders/{routing-key}",
		"a@b.example@kafka:in":                            "a@b.example kafka in ",
		"a=b:c@rabbitmq:in@home=inbox:x":                  "a=b:c rabbitmq in@home inbox:x",
		"etf1+x@kafka:in":                                 "etf1+x kafka in ",
		"kafka:in=https://me@kafka:9000/x":                "default kafka in https://me@kafka:9000/x",
		"task+kafka:in":                                   "default task+kafka in ",
		"acme@task+kafka:in=!kafka:out":                   "acme task+kafka in !kafka:out",
		"task+x@kafka:in":                                 "task+x kafka in ",
		"acme@rabbitmq:an in@kafka:x":                     "acme rabbitmq an in@kafka:x ",

		"rabbitmq:in@kafka:x":                 "can be read in two ways, as rabbitmq:in@kafka:x of the tenant default and as kafka:x of the tenant rabbitmq:in:",
		"acme@rabbitmq:in@kafka:x":            "can be read in two ways, as rabbitmq:in@kafka:x of the tenant acme and as kafka:x of the tenant acme@rabbitmq:in:",
		"task+rabbitmq:in":                    "write task+kafka:TOPIC",
		"acme@etf1+kafka:in=!kafka:out":       "acme etf1+kafka in !kafka:out",
		"acme@etf1+rabbitmq:in":               "write etf1+kafka:TOPIC",
		"a/b@rabbitmq:in":                     `tenant "a/b" has a forbidden character`,
		"@rabbitmq:in":                        "tenant is empty",
		strings.Repeat("x", 65) + "@kafka:in": "at most 64",
		"":                                    "is not of the form",
		"acme@":                               "is not of the form",
		"acme":                                "is not of the form",
		"rabbitmq:":                           "is not of the form",
		"acme@kafka:=kafka:out":               "is not of the form",
		"nats:in":                             "is not of the form",
		"acme@Rabbitmq:in":                    "is not of the form",
		"other+kafka:in":                      "is not of the form",
		"task+etf1+kafka:in":                  "is not of the form",
		"acme@task+kafka:in@kafka:x":          "can be read in two ways",
	} {
		o, err := ParseOrigin(text)
		got := fmt.Sprint(o.Tenant, " ", formed(o), o.Broker, " ", o.Name, " ", o.Channel)
		if err != nil {
			got = err.Error()
		}
		if got != want && !(err != nil && strings.Contains(got, want)) {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
}

// formed is an origin's form as it is written.
func formed(o Origin) string {
	if o.Form == "" {
		return ""
	}
	return o.Form + "+"
}

// FuzzParseOrigin: what is taken is written in one way only, which is what was given. What an
// operator writes for a tenant and a queue is taken as that, or refused, and never as another
// tenant's.
func FuzzParseOrigin(f *testing.F) {
	f.Add("acme", "rabbitmq", "in", "!rabbitmq:orders/{routing-key}")
	f.Add("kafka:a", "rabbitmq", "a@kafka:b", "inbox:x")
	f.Add("rabbitmq:in", "kafka", "in", "https://x@rabbitmq:1/")
	f.Add("", "task+kafka", "a=b", "")
	f.Fuzz(func(t *testing.T, tenant, broker, name, channel string) {
		text := broker + ":" + name
		if tenant != "" {
			text = tenant + "@" + text
		}
		if channel != "" {
			text += "=" + channel
		}
		o, err := ParseOrigin(text)
		if err != nil {
			return
		}
		if err := postdate.CheckTenant(o.Tenant); err != nil || o.Broker != "rabbitmq" && o.Broker != "kafka" || o.Name == "" || strings.Contains(o.Name, "=") {
			t.Fatalf("%s is read as %+v, %v", text, o, err)
		}
		again := o.Tenant + "@" + formed(o) + o.Source()
		if o.Channel != "" || strings.HasSuffix(text, "=") {
			again += "=" + o.Channel
		}
		if again != text && again != "default@"+text {
			t.Fatalf("%s is read as %s", text, again)
		}
		if broker == "rabbitmq" || broker == "kafka" {
			if tenant == "" {
				tenant = "default"
			}
			if name, _, _ = strings.Cut(name, "="); name != "" && postdate.CheckTenant(tenant) == nil && (o.Tenant != tenant || o.Name != name || o.Broker != broker) {
				t.Fatalf("%s of %s is read as %+v", text, tenant, o)
			}
		}
	})
}
