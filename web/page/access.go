package page

// Access says who may open a page. What a page shows and does is limited to the visitor's own org by the nouns.
type Access int

const (
	Anybody Access = iota
	SignedIn
	PlatformAdmin // for all others there is no such page
)
