package web

// access says who may open a page. What a page shows and does is limited to the visitor's own org by the nouns.
type access int

const (
	anybody access = iota
	signedIn
	platformAdmin // for all others there is no such page
)
