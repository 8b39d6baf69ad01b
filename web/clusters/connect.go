package clusters

import (
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// connect returns how to reach a running cluster; nil if there is no way. mayOpen: the visitor may open shells.
func (s *Pages) connect(c cluster.Cluster, mayOpen bool) *Connect {
	if c.State != lifecycle.Running && c.State != lifecycle.Degraded {
		return nil
	}
	out := &Connect{}
	if host, port, err := net.SplitHostPort(s.SSHAddr); err == nil {
		for _, n := range c.Nodes {
			of := c.ID.String()
			if n.Rank > 0 {
				of += fmt.Sprintf(".%d", n.Rank)
			}
			out.SSH = append(out.SSH, fmt.Sprintf("ssh -p %s %s@%s", port, of, host))
		}
	}
	if s.AppLink != nil {
		for _, n := range c.Nodes {
			for _, p := range c.Spec.Ports {
				if p.Protocol == "http" {
					out.Ports = append(out.Ports, PortLink{
						Rank: n.Rank,
						Port: p.Port,
						Href: fmt.Sprintf("/clusters/%s/ports/%d/%d", c.ID, n.Rank, p.Port),
					})
				}
			}
		}
	}
	if s.Terminal != nil && mayOpen {
		out.Terminal = "/clusters/" + c.ID.String() + "/terminal"
	}
	if len(out.SSH) == 0 && len(out.Ports) == 0 && out.Terminal == "" {
		return nil
	}
	return out
}

// open adds to each node what of it can be opened.
func (c *Connect) open(nodes []NodeRow) {
	for i := range nodes {
		n := &nodes[i]
		if c.Terminal != "" && n.State.Tone == "ok" {
			n.Terminal = fmt.Sprintf("%s?node=%d", c.Terminal, n.Rank)
		}
		for _, p := range c.Ports {
			if p.Rank == n.Rank {
				n.Ports = append(n.Ports, p)
			}
		}
	}
}

// openPort redirects the browser to a port of a rank, with a link that authorises it.
func (s *Pages) openPort(v *page.Visit) error {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	rank, err2 := strconv.Atoi(chi.URLParam(v.R, "rank"))
	port, err3 := strconv.Atoi(chi.URLParam(v.R, "port"))
	if err != nil || err2 != nil || err3 != nil || s.AppLink == nil {
		return fault.New(fault.NotFound, "port not found")
	}
	if _, err := s.Clusters.Ingress.Shell(v.R.Context(), v.Who.Org, cl, rank); err != nil {
		return err
	}
	link, err := s.AppLink(v.Who, cl, rank, port)
	if err != nil {
		return err
	}
	v.W.Header().Set("Referrer-Policy", "no-referrer")
	http.Redirect(v.W, v.R, link, http.StatusSeeOther)
	return nil
}
