module github.com/extsvc/svc/docs/site

go 1.26.0

require (
	github.com/matryer/is v1.4.1
	github.com/yuin/goldmark v1.8.7
	golang.org/x/net v0.61.0
)
