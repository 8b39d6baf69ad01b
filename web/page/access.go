package page

// Access is who may open a page. The domain limits what a page shows and does to the visitor's own organisation.
type Access int

const (
	Anybody Access = iota
	SignedIn
	PlatformAdmin // staff; for everybody else the page does not exist
)
