package board

import (
	"bytes"
	"context"
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"searchloop/internal/deliver"
	"searchloop/internal/fail"
)

// gateway is a group of a Prometheus pushgateway: the newest value of every number,
// under the labels job and dataset. A group is replaced whole.
type gateway struct {
	url    string
	to     *deliver.Client
	values map[string]float64 // by metric
	step   int64
}

func newGateway(base string, o *Options) *gateway {
	return &gateway{url: base + "/metrics/job/searchloop_" + o.Job + "/dataset@base64/" + base64.RawURLEncoding.EncodeToString([]byte(o.Dataset)),
		to: deliver.New("pushgateway"), values: map[string]float64{}}
}

func (g *gateway) name() string { return "pushgateway" }

func (g *gateway) take(ctx context.Context, list []batch) error {
	for _, b := range list {
		g.step = b.step
		for _, p := range b.points {
			g.values[metricName(p.Tag)] = p.Value
		}
	}
	g.values["searchloop_step"] = float64(g.step)
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(g.values)) {
		family := &dto.MetricFamily{Name: &name, Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: proto.Float64(g.values[name])}}}}
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return fail.Wrap(fail.Bug, "send", g.name(), err)
		}
	}
	_, err := g.to.Send(ctx, "PUT", g.url, map[string]string{"Content-Type": string(expfmt.NewFormat(expfmt.TypeTextPlain))}, text.Bytes())
	return err
}

func (g *gateway) close(context.Context) error { return nil }

// metricName is a tag as Prometheus names metrics: searchloop_grpo_mismatch_abs_mean.
func metricName(tag string) string {
	return "searchloop_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, tag)
}
