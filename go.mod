module github.com/extsvc/svc

go 1.26.0

require (
	github.com/google/uuid v1.6.0
	github.com/matryer/is v1.4.1
	golang.org/x/crypto v0.58.0
)

require golang.org/x/sys v0.49.0 // indirect
