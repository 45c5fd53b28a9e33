package main

import (
	"cmp"
	"net/http"

	"github.com/extsvc/svc/httpapi"
	"github.com/gin-gonic/gin"
)

func withGin(api *httpapi.Handler) http.Handler {
	r := gin.New()
	r.RedirectTrailingSlash = false // it redirects before any middleware is asked
	// Recovery comes last: it would make half a list, which is cut off, pass for a whole one.
	r.Use(gin.Logger(), ginCounted, ginAhead(api), gin.Recovery())
	r.GET("/", gin.WrapF(home))
	r.GET("/whoami", gin.WrapH(api.Protect(http.HandlerFunc(whoami))))
	return r
}

// ginAhead is api.Ahead as a middleware of gin's.
func ginAhead(api *httpapi.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Next() })
		api.Ahead(next).ServeHTTP(c.Writer, c.Request)
		c.Abort() // whoever was to answer has
	}
}

func ginCounted(c *gin.Context) {
	c.Next()
	served.Add(cmp.Or(c.Request.Pattern, c.FullPath()), 1)
}
