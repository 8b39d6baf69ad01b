// Package clusters holds the pages of clusters, with their live updates and logs.
package clusters

import (
	"github.com/musterhq/muster/internal/fleet/nodelog"
	"github.com/musterhq/muster/web/page"
)

// Pages are the pages of clusters. Make them with New.
type Pages struct {
	*page.Site
	logs    *nodelog.Reader
	streams streams
}

// New returns the pages of a site; it starts nothing.
func New(site *page.Site) *Pages {
	return &Pages{Site: site, logs: nodelog.New(site.Clusters.Views, nodelog.Dialled(site.Dialer), site.Bus)}
}

// Routes mounts all pages of this package.
func (s *Pages) Routes(m page.Mux) {
	get, post := m.Get, m.Post
	get("/clusters", page.ReadClusters, s.clusters)
	get("/clusters/{id}", page.ReadClusters, s.clusterPage)
	get("/clusters/{id}/live", page.ReadClusters, s.clusterLive)
	get("/clusters/{id}/logs", page.ReadClusters, s.followLogs)
	get("/clusters/{id}/logs.txt", page.ReadClusters, s.downloadLogs)
	get("/clusters/{id}/ports/{rank}/{port}", page.WriteClusters, s.openPort)
	get("/clusters/{id}/terminal", page.WriteClusters, s.terminalPage)
	get("/clusters/{id}/terminal/stream", page.WriteClusters, s.terminalStream)
	post("/clusters/release", page.WriteClusters, s.releaseClusters)
	post("/clusters/{id}/snapshots", page.WriteClusters, s.snapshotMount)
	post("/clusters/{id}/actions", page.WriteClusters, s.actOnCluster)
}
