package clusters

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kballard/go-shellquote"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// SpecRow is one line of a cluster's spec.
type SpecRow struct {
	Name, Value string
	Mono        bool
}

// specRows returns what the renter asked for, without the fields that have their default. Environment variables are
// listed by name: their values are secret.
func specRows(s market.Spec, currency string) []SpecRow {
	var rows []SpecRow
	add := func(name, value string, mono bool) {
		if value != "" {
			rows = append(rows, SpecRow{name, value, mono})
		}
	}
	d := market.DefaultSpec()
	add("Image", s.Image, true)
	add("Entry point", shellquote.Join(s.Entrypoint...), true)
	if len(s.Command) > 0 {
		add("Command", shellquote.Join(s.Command...), true)
	} else if len(s.Entrypoint) == 0 {
		add("Command", "the image's own", false)
	}
	add("User", s.User, true)
	add("Environment", strings.Join(slices.Sorted(maps.Keys(s.Env)), " "), true)
	size := view.Plural(s.Nodes, "node", "nodes") + " with " + view.Plural(s.GPUsPerNode, "GPU", "GPUs")
	if s.Nodes > 1 {
		size += " each"
	}
	add("Size", size, false)
	add("Query", s.GPU, true)
	disk := fmt.Sprintf("%d GB per node", s.DiskGB)
	if s.DiskLimited {
		disk += ", enforced"
	}
	add("Disk", disk, false)
	if s.ScratchGB > 0 {
		add("Scratch", fmt.Sprintf("%d GB per node", s.ScratchGB), false)
	}
	for _, m := range s.Mounts {
		if !m.Bucket.IsZero() {
			add("Bucket at "+m.Path, m.Bucket.String()+" ("+m.Mode+")", true)
			continue
		}
		if m.Shared != "" {
			add("Shared file system at "+m.Path, m.Shared+" ("+m.Mode+")", true)
			continue
		}
		add("Volume at "+m.Path, m.Volume.String()+" ("+m.Mode+")", true)
	}
	ports := make([]string, len(s.Ports))
	for i, p := range s.Ports {
		ports[i] = strconv.Itoa(p.Port) + "/" + p.Protocol
	}
	add("Ports", strings.Join(ports, ", "), true)
	add("Network", networkOf(s.Network), false)
	add("When a node is lost", map[string]string{
		"fail": "end the cluster", "replace": "replace it", "ignore": "go on without it",
	}[s.OnNodeFailure], false)
	if s.Restart != d.Restart {
		add("When the command fails", "start it again", false)
	}
	if s.Egress != d.Egress {
		add("Internet", s.Egress, false)
	}
	if s.Runtime == agentapi.RuntimeRunsc {
		add("Isolation", "gVisor (runsc)", false)
	}
	if s.Trust != "" {
		add("Trust", string(s.Trust), false)
	}
	if s.Budget != nil {
		add("Budget", view.Cents(*s.Budget)+" "+currency, false)
	}
	if s.MaxPricePerHour != nil {
		add("Highest price", view.PerHour(money.Micro(*s.MaxPricePerHour))+" "+currency+" per hour", false)
	}
	if s.MaxDuration != nil {
		add("Stops after", strconv.FormatFloat(float64(*s.MaxDuration)/3600, 'g', 4, 64)+" h of running time", false)
	}
	add("Project", s.ProjectName(), false)
	labels := make([]string, 0, len(s.Labels))
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		labels = append(labels, k+"="+s.Labels[k])
	}
	add("Labels", strings.Join(labels, " "), true)
	return rows
}

func networkOf(n market.Network) string {
	var parts []string
	switch n.Scope {
	case market.ScopeFabric:
		parts = append(parts, "all nodes in one fabric")
	case market.ScopeHost:
		parts = append(parts, "nodes may share one host")
	}
	if n.MinGbps > 0 {
		parts = append(parts, fmt.Sprintf("at least %g Gbit/s between nodes", n.MinGbps))
	}
	if n.RDMA() {
		parts = append(parts, "RDMA ports of whole hosts")
	}
	return strings.Join(parts, ", ")
}
