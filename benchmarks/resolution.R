# R's estimates for resolution.py: one way per call, files exchanged through a folder.
#
#     Rscript resolution.R <folder> <kernel|adaptive|tp|soap>
#
# Reads points.csv (x, y: to fit), places.csv (x, y: to score), pixels.csv (share of land of every pixel, a matrix
# with the southernmost row first), frame.csv (xmin, xmax, ymin, ymax), nodes.csv (x, y, area, count), and for the
# soap film rings.csv (ring, x, y) and knots.csv (x, y). Writes found.csv (the intensity at the places and, in the
# last row, its integral over the land) and note.txt (seconds by the wall and of the processor, then words).

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
way <- arguments[2]
read <- function(name, ...) read.csv(file.path(folder, name), ...)
points <- read("points.csv")
places <- read("places.csv")

write_out <- function(value, mass, spent, note) {
  write.csv(data.frame(value = c(value, mass)), file.path(folder, "found.csv"), row.names = FALSE)
  cpu <- spent[["user.self"]] + spent[["sys.self"]]
  writeLines(c(format(spent[["elapsed"]]), format(cpu), note), file.path(folder, "note.txt"))
}

if (way %in% c("kernel", "adaptive")) {
  suppressMessages(library(spatstat))
  share <- as.matrix(read("pixels.csv", header = FALSE))
  dimnames(share) <- NULL
  frame <- read("frame.csv")
  across <- c(frame$xmin, frame$xmax)
  up <- c(frame$ymin, frame$ymax)
  land <- owin(across, up, mask = share > 0)
  pixel <- diff(across) / ncol(share)
  pattern <- suppressWarnings(ppp(points$x, points$y, window = land))
  begin <- proc.time()
  # With Diggle's correction the estimate integrates to the number of points, so the shortcut is exact.
  sigma <- suppressWarnings(
    bw.ppl(pattern, srange = c(pixel, min(diff(across), diff(up)) / 6), ns = 20, shortcut = TRUE, diggle = TRUE)
  )
  if (way == "kernel") {
    surface <- density(pattern, sigma = sigma, edge = TRUE, diggle = TRUE, dimyx = dim(share))
  } else {
    # Abramson's rule around the cross-validated bandwidth: better here than spatstat's own global bandwidth.
    widths <- bw.abram(pattern, h0 = as.numeric(sigma), at = "points")
    surface <- suppressWarnings(
      densityAdaptiveKernel(pattern, bw = widths, edge = TRUE, diggle = TRUE, dimyx = dim(share), ngroups = 16)
    )
  }
  spent <- proc.time() - begin
  values <- as.matrix(surface)
  values[is.na(values)] <- 0
  mass <- sum(pmax(values, 0) * share) * surface$xstep * surface$ystep
  value <- safelookup(surface, ppp(places$x, places$y, window = Frame(land)), warn = FALSE)
  note <- sprintf("spatstat %s, %d x %d pixels, bandwidth %.4g", packageVersion("spatstat"),
    nrow(share), ncol(share), as.numeric(sigma))
} else {
  suppressMessages(library(mgcv))
  nodes <- read("nodes.csv")
  begin <- proc.time()
  if (way == "tp") {
    fitted <- bam(count ~ s(x, y, bs = "tp", k = 400) + offset(log(area)),
      family = poisson, method = "fREML", discrete = TRUE, data = nodes)
    what <- "thin-plate spline of 400"
  } else {
    rings <- read("rings.csv")
    knots <- read("knots.csv")
    boundary <- unname(lapply(split(rings, rings$ring), function(ring) list(x = ring$x, y = ring$y)))
    size <- pmax(8, pmin(30, sapply(boundary, function(ring) length(ring$x) %/% 3)))
    fitted <- gam(count ~ s(x, y, bs = "so", k = size, xt = list(bnd = boundary, nmax = 150)) + offset(log(area)),
      family = poisson, method = "REML", data = nodes, knots = knots)
    what <- sprintf("soap film, %d rings, %d knots inside", length(boundary), nrow(knots))
  }
  everywhere <- as.numeric(predict(fitted, nodes, type = "response"))
  places$area <- 1
  value <- as.numeric(predict(fitted, places, type = "response"))
  spent <- proc.time() - begin
  mass <- sum(everywhere)
  note <- sprintf("mgcv %s, %s, %.0f effective parameters", packageVersion("mgcv"), what, sum(fitted$edf))
}
write_out(value, mass, spent, note)
