package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market/query"
)

// The actions of a plan.
const (
	planCreate  = "create"
	planNothing = "none"
	planReplace = "replace"
)

// plan is what has to be done so that a cluster with the spec's name and contents runs.
type plan struct {
	Action  string          `json:"action"`
	Cluster *client.Cluster `json:"cluster"` // the one that runs now
	Changes []specChange    `json:"changes"`
	Quote   *client.Quote   `json:"quote"` // the price of the new cluster; its GPUs are not kept

	key string // idempotency key of the new cluster's rental
}

// specChange is a field of the spec in which the file differs from the cluster.
type specChange struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

const planLong = `The file is a spec in YAML or JSON, as for muster cluster create -f, and its name identifies the cluster:
the one of that name that has not ended. Fields that the file leaves out are not compared, nor are values of env, which
the platform does not show.`

func clusterPlan(s *base.Session) *cobra.Command {
	var f specFlags
	cmd := &cobra.Command{
		Use: "plan -f FILE", Short: "Show what muster cluster apply would do, and the price", Args: base.Exactly(),
		Long:    planLong,
		Example: "  muster cluster plan -f train.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			_, p, err := planOf(cmd, c, &f)
			if err != nil {
				return err
			}
			return s.Show(cmd, p, func(out *base.Printer) { printPlan(out, p) })
		},
	}
	f.register(cmd)
	return cmd
}

func clusterApply(s *base.Session) *cobra.Command {
	var f specFlags
	var replace, wait bool
	cmd := &cobra.Command{
		Use: "apply -f FILE", Short: "Rent the cluster that a file describes, unless it runs already", Args: base.Exactly(),
		Long: planLong + `

A cluster cannot be changed while it runs. If it differs from the file, apply refuses; with --replace it releases the
cluster and rents a new one, after it has claimed GPUs for the new one.`,
		Example: "  muster cluster apply -f train.yaml --wait\n  muster cluster apply -f train.yaml --replace",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := s.Client(cmd)
			spec, p, err := planOf(cmd, c, &f)
			if err != nil {
				return err
			}
			if p.Action == planNothing {
				return s.Show(cmd, p.Cluster, func(out *base.Printer) { printPlan(out, p) })
			}
			if p.Action == planReplace && !replace {
				return fault.New(fault.Conflict, "%s runs with another %s: show the differences with muster cluster plan, and "+
					"replace it with --replace", spec.Name, changedFields(p.Changes))
			}
			v, err := carryOut(cmd.Context(), c, spec, p)
			if err != nil {
				return err
			}
			if p.Action == planReplace && !s.ForPrograms() {
				cmd.PrintErrf("Released %s, which was %s.\n", p.Cluster.ID, p.Cluster.State)
			}
			if wait {
				return waitFor(s, cmd, c, v.ID, client.Running)
			}
			return s.Show(cmd, v, func(out *base.Printer) { printStarting(out, v) })
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&replace, "replace", false, "release a cluster that differs, and rent a new one")
	cmd.Flags().BoolVar(&wait, "wait", false, "stay until it is running, and show how it comes up")
	return cmd
}

// planOf reads the spec and compares it with what runs. For a cluster that would be created or replaced, it gets a
// quote for the price and returns its GPUs at once.
func planOf(cmd *cobra.Command, c *client.Client, f *specFlags) (client.Spec, plan, error) {
	p := plan{Action: planCreate, Changes: []specChange{}}
	if f.file == "" {
		return client.Spec{}, p, fault.New(fault.Invalid, "name the file of the spec: -f FILE")
	}
	spec, err := f.spec(cmd, nil)
	if err != nil {
		return spec, p, err
	}
	if spec.Name == "" {
		return spec, p, fault.New(fault.Invalid, "%s: the spec needs a name, which identifies the cluster", f.file)
	}
	live, all, err := base.ClustersNamed(cmd.Context(), c, spec.Name)
	if err != nil {
		return spec, p, err
	}
	p.key = applyKey(spec.Name, all)
	switch len(live) {
	case 0:
	case 1:
		p.Cluster, p.Action = &live[0], planReplace
		if p.Changes, err = changes(spec, live[0]); err != nil {
			return spec, p, err
		}
		if len(p.Changes) == 0 {
			p.Action = planNothing
			return spec, p, nil
		}
	default:
		return spec, p, fault.New(fault.Conflict, "%d clusters are called %s: give the spec a name that only one has",
			len(live), spec.Name)
	}
	q, err := c.Quotes.Create(cmd.Context(), spec)
	if err != nil {
		return spec, p, err
	}
	p.Quote = &q
	if _, err := c.Quotes.Return(cmd.Context(), q.ID); err != nil {
		return spec, p, err
	}
	return spec, p, nil
}

// applyKey returns the idempotency key under which apply rents the cluster with a name, after all that had the name
// before, newest first. Of several applies at the same time one rents, and the others get its cluster.
func applyKey(name string, before []client.Cluster) string {
	last := ""
	if len(before) > 0 {
		last = before[0].ID.String()
	}
	return fmt.Sprintf("apply-%x", sha256.Sum256([]byte(name+"\n"+last)))
}

// carryOut rents the cluster of a plan. It claims the GPUs of the new cluster before it releases the old one.
func carryOut(ctx context.Context, c *client.Client, spec client.Spec, p plan) (client.Cluster, error) {
	if p.Action == planCreate {
		return c.Clusters.Rent(client.WithKey(ctx, p.key), spec)
	}
	q, err := c.Quotes.Create(ctx, spec)
	if err != nil {
		return client.Cluster{}, err
	}
	if _, err := c.Clusters.Release(ctx, p.Cluster.ID); err != nil {
		return client.Cluster{}, err
	}
	return c.Clusters.RentQuote(ctx, q.ID, client.Spec{}) // the quote holds the whole spec
}

// changes returns the fields of a spec in which a cluster differs from it, sorted.
func changes(spec client.Spec, c client.Cluster) ([]specChange, error) {
	want, err := asFields(spec)
	if err != nil {
		return nil, err
	}
	have, err := asFields(c.Spec)
	if err != nil {
		return nil, err
	}
	delete(want, "registry_auth") // the platform never shows it
	out := []specChange{}
	compareFields("", want, have, &out)
	return out, nil
}

func asFields(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out map[string]any
	return out, json.Unmarshal(raw, &out)
}

func compareFields(prefix string, want, have map[string]any, out *[]specChange) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		field, w, h := prefix+name, want[name], have[name]
		if fields, nested := w.(map[string]any); nested {
			other, _ := h.(map[string]any)
			if field == "env" {
				compareNames(field, fields, other, out)
			} else {
				compareFields(field+".", fields, other, out)
			}
			continue
		}
		if field == "gpu" && sameQuery(w, h) || reflect.DeepEqual(w, h) {
			continue
		}
		*out = append(*out, specChange{field, shortText(h), shortText(w)})
	}
}

// compareNames records the names that only one of two maps has.
func compareNames(field string, want, have map[string]any, out *[]specChange) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if _, ok := have[name]; !ok {
			*out = append(*out, specChange{field + "." + name, "", "set"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[name]; !ok {
			*out = append(*out, specChange{field + "." + name, "set", ""})
		}
	}
}

// sameQuery reports whether two offer queries have the same terms.
func sameQuery(a, b any) bool {
	x, err1 := query.Parse(fmt.Sprint(a))
	y, err2 := query.Parse(fmt.Sprint(b))
	return err1 == nil && err2 == nil && x.String() == y.String()
}

// shortText formats a value of a spec: text as it is, everything else as JSON.
func shortText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func changedFields(all []specChange) string {
	names := make([]string, len(all))
	for i, c := range all {
		names[i] = c.Field
	}
	return strings.Join(names, ", ")
}

func printPlan(p *base.Printer, v plan) {
	switch v.Action {
	case planNothing:
		p.Line("%s (%s) is %s and as the file describes it: there is nothing to do.", v.Cluster.Name, v.Cluster.ID,
			v.Cluster.State)
		return
	case planReplace:
		p.Line("%s (%s) is %s and differs from the file:", v.Cluster.Name, v.Cluster.ID, v.Cluster.State)
		rows := make([][]string, len(v.Changes))
		for i, c := range v.Changes {
			rows[i] = []string{"  " + c.Field, base.OrDash(c.From), base.OrDash(c.To)}
		}
		p.Table([]string{"  FIELD", "NOW", "IN THE FILE"}, rows)
		p.Line("muster cluster apply --replace releases it and rents a new one for")
	case planCreate:
		p.Line("A new cluster would be rented for")
	}
	printPrice(p, *v.Quote)
}
