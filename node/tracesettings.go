package node

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/postdate/postdate/internal/tracing"
)

// traceSettings is what the variables of OpenTelemetry say that its SDK leaves to us.
type traceSettings struct {
	off     bool
	grpc    bool // else HTTP with protobuf
	sampler tracing.Sampler
}

// validateTraces says which variable of OpenTelemetry has a wrong value. Its SDK would go on with another one.
func (c Config) validateTraces() error {
	if !c.Traces {
		return nil
	}
	s, err := readTraceSettings()
	if err != nil || s.off {
		return err
	}
	return checkExporter()
}

func readTraceSettings() (s traceSettings, err error) {
	disabled, err := oneOf("OTEL_SDK_DISABLED", "false", "true")
	if err != nil {
		return s, err
	}
	exporter, err := oneOf("OTEL_TRACES_EXPORTER", "otlp", "none")
	if err != nil {
		return s, err
	}
	s.off = disabled == "true" || exporter == "none"
	protocol, err := oneOf(ofTraces("PROTOCOL"), "http/protobuf", "grpc")
	if err != nil {
		return s, err
	}
	s.grpc = protocol == "grpc"
	s.sampler, err = readSampler()
	return s, err
}

const (
	samplerVariable = "OTEL_TRACES_SAMPLER"
	ratioVariable   = "OTEL_TRACES_SAMPLER_ARG"
)

func readSampler() (s tracing.Sampler, err error) {
	name, err := oneOf(samplerVariable, "parentbased_always_on", "always_on", "always_off", "traceidratio",
		"parentbased_always_off", "parentbased_traceidratio")
	if err != nil {
		return s, err
	}
	name, s.ParentBased = strings.CutPrefix(name, "parentbased_")
	switch name {
	case "always_on":
		s.Ratio = 1
	case "traceidratio":
		s.Ratio = 1
		if text := strings.TrimSpace(os.Getenv(ratioVariable)); text != "" {
			s.Ratio, err = strconv.ParseFloat(text, 64)
			if err != nil || !(s.Ratio >= 0 && s.Ratio <= 1) {
				return s, invalid("%s is %q: it must be a number between 0 and 1, like 0.01", ratioVariable, text)
			}
		}
	}
	return s, nil
}

// oneOf returns a variable's value, which must be one of values; the first is that of an empty one. Capitals do not
// count.
func oneOf(variable string, values ...string) (string, error) {
	text := strings.TrimSpace(os.Getenv(variable))
	value := strings.ToLower(text)
	switch {
	case value == "":
		return values[0], nil
	case !slices.Contains(values, value):
		return "", invalid("%s is %q: it must be %s or %s", variable, text,
			strings.Join(values[:len(values)-1], ", "), values[len(values)-1])
	}
	return value, nil
}

// ofTraces names the variable of the exporter that counts for traces: the one for them alone, or that for all
// signals.
func ofTraces(name string) string {
	if own := "OTEL_EXPORTER_OTLP_TRACES_" + name; os.Getenv(own) != "" {
		return own
	}
	return "OTEL_EXPORTER_OTLP_" + name
}

// checkExporter checks what the exporter and its queue read by themselves.
func checkExporter() error {
	endpoint := ofTraces("ENDPOINT")
	if text := os.Getenv(endpoint); text != "" {
		if u, err := url.Parse(text); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return invalid("%s is not a URL: write it like http://localhost:4318, or http://localhost:4317 for gRPC",
				endpoint)
		}
	}
	for _, variable := range []string{ofTraces("TIMEOUT"), "OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT",
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"} {
		text := strings.TrimSpace(os.Getenv(variable))
		if n, err := strconv.Atoi(text); text != "" && (err != nil || n < 1 || n > 1<<20) {
			return invalid("%s is %q: it must be a whole number between 1 and %d", variable, text, 1<<20)
		}
	}
	if _, err := oneOf(ofTraces("COMPRESSION"), "none", "gzip"); err != nil {
		return err
	}
	if _, err := oneOf(ofTraces("INSECURE"), "false", "true"); err != nil {
		return err
	}
	return cmp.Or(checkPairs(ofTraces("HEADERS")), checkPairs("OTEL_RESOURCE_ATTRIBUTES"), checkFiles())
}

// checkPairs checks a list. Its values may be keys, and are not shown.
func checkPairs(variable string) error {
	for pair := range strings.SplitSeq(os.Getenv(variable), ",") {
		name, value, has := strings.Cut(strings.TrimSpace(pair), "=")
		if _, err := url.PathUnescape(value); pair != "" && (!has || strings.TrimSpace(name) == "" || err != nil) {
			return invalid("%s is not a list like name=value,name=value, percent-encoded where it needs that", variable)
		}
	}
	return nil
}

// checkFiles checks that the files for TLS can be read.
func checkFiles() error {
	authority := ofTraces("CERTIFICATE")
	if file := os.Getenv(authority); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return invalid("%s: %w", authority, err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return invalid("%s: %s has no certificate in PEM", authority, file)
		}
	}
	certificate, key := ofTraces("CLIENT_CERTIFICATE"), ofTraces("CLIENT_KEY")
	cert, with := os.Getenv(certificate), os.Getenv(key)
	if cert == "" && with == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(cert, with); err != nil {
		return invalid("%s and %s: %w", certificate, key, err)
	}
	return nil
}
