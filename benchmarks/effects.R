# mgcv for effects.py: s(x) + s(east, north) on all data sets of a folder, in one call.
#
#     Rscript effects.R <folder>
#
# Reads every data-*.csv (east, north, x, area, count) and grid.csv (x); writes found-*.csv (rate, per area, at the rows)
# and curve-*.csv (mean, se of s(x) at the values of the grid), and note.txt.

suppressMessages(library(mgcv))
folder <- commandArgs(trailingOnly = TRUE)[1]
grid <- read.csv(file.path(folder, "grid.csv"))
begin <- proc.time()[["elapsed"]]
for (name in list.files(folder, "^data-.*[.]csv$")) {
  data <- read.csv(file.path(folder, name))
  fitted <- gam(
    count ~ s(x, k = 20) + s(east, north, k = 60) + offset(log(area)),
    family = poisson, method = "REML", data = data
  )
  rate <- as.numeric(predict(fitted, data, type = "response")) / data$area
  there <- cbind(grid, data[rep(1, nrow(grid)), c("east", "north", "area")])
  curve <- predict(fitted, there, type = "terms", terms = "s(x)", se.fit = TRUE)
  write.csv(data.frame(rate), file.path(folder, sub("^data", "found", name)), row.names = FALSE)
  shown <- data.frame(mean = as.numeric(curve$fit), se = as.numeric(curve$se.fit))
  write.csv(shown, file.path(folder, sub("^data", "curve", name)), row.names = FALSE)
}
writeLines(c(format(proc.time()[["elapsed"]] - begin), sprintf("mgcv %s", packageVersion("mgcv"))),
  file.path(folder, "note.txt"))
